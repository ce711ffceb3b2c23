//! Tables as the log defines them, and the statements that say so.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{json, Value as Json};

use super::message::{Change, Described};
use super::order::Position;
use super::value::{check_name, Kind, Refused};

/// The most columns of a table, as in the servers whose log format this is.
pub const COLUMNS_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// What rows have that were written before the column was added: as JSON, and as in row images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<(String, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub database: String,
    pub table: String,
    pub columns: Vec<Column>,
    pub key: Vec<String>,
    /// Where the rows come from. Two sources do not write one table.
    pub origin: String,
    /// The newest position at which the table had this definition.
    pub position: Position,
}

impl Table {
    pub fn place_of(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known.name == column)
    }

    /// Its definition (`typed_rows`): `key` and `columns`.
    pub fn definition(&self) -> Json {
        let column = |column: &Column| column.kind.column(&column.name, !self.key.contains(&column.name));
        json!({"key": self.key, "columns": self.columns.iter().map(column).collect::<Vec<_>>()})
    }

    pub fn created(&self) -> Json {
        json!({"table": self.table, "created": self.definition()})
    }

    pub fn emptied(&self) -> Json {
        json!({"table": self.table, "emptied": true})
    }

    /// The statement that turns `self` into `after`; None: they are the same. `values`: what existing rows
    /// have in columns that are added.
    pub fn altered(&self, after: &Table) -> Option<Json> {
        let definition = after.definition();
        if definition == self.definition() {
            return None;
        }
        let added = after.columns.iter().filter(|column| self.place_of(&column.name).is_none());
        let values: serde_json::Map<String, Json> = added
            .filter_map(|column| {
                let (json, _) = column.default.as_ref()?;
                Some((column.name.clone(), serde_json::from_str(json).ok()?))
            })
            .collect();
        Some(json!({"table": self.table, "altered": definition, "values": values}))
    }
}

/// What is certain about the age of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    Newer,
    Older,
    Unknown,
}

/// The definition after a message with these fields. Rows of other partitions of the topic may be older, and
/// change nothing. If the age is not known, columns are only added.
pub fn evolved(table: &Table, fields: &[Described], key: &[String], age: Age) -> Result<Table, Refused> {
    let mut after = table.clone();
    if age == Age::Older {
        return Ok(after);
    }
    if age == Age::Newer {
        after.columns.retain(|column| fields.iter().any(|(field, _)| field.name == column.name));
        after.key = key.to_vec();
    }
    for (field, default) in fields {
        let Some(kind) = &field.kind else { continue };
        match after.columns.iter_mut().find(|column| column.name == field.name) {
            Some(column) if column.kind == *kind => {}
            Some(column) if age == Age::Newer => column.kind = kind.clone(),
            Some(_) => {}
            None => {
                check_name(&field.name)?;
                after.columns.push(Column {
                    name: field.name.clone(),
                    kind: kind.clone(),
                    default: default.clone(),
                });
            }
        }
    }
    if after.columns.len() > COLUMNS_MAX {
        return Err(format!("the table has more than {COLUMNS_MAX} columns").into());
    }
    Ok(after)
}

impl Table {
    /// The table that a first message describes.
    pub fn new(change: &Change<'_>) -> Result<Self, Refused> {
        let empty = Self {
            database: change.database.clone(),
            table: change.table.clone(),
            columns: Vec::new(),
            key: Vec::new(),
            origin: change.origin.clone(),
            position: change.position.clone(),
        };
        let table = evolved(&empty, &change.fields, &change.key, Age::Newer)?;
        if table.columns.is_empty() {
            return Err("it has no columns".into());
        }
        if let Some((one, other)) = table.alike() {
            let reason = "their names differ in the case of letters only. Leave one out at Debezium \
                          (column.exclude.list)";
            return Err(format!("columns `{one}` and `{other}`: {reason}").into());
        }
        Ok(table)
    }

    /// Two columns whose names are the same to servers that do not know case in names of columns.
    fn alike(&self) -> Option<(&str, &str)> {
        let mut seen = HashMap::with_capacity(self.columns.len());
        self.columns.iter().find_map(|column| {
            seen.insert(column.name.to_lowercase(), column.name.as_str())
                .map(|other| (other, column.name.as_str()))
        })
    }

    /// Whether a change has the same columns. Columns whose type is not known count as the same.
    pub fn fits(&self, change: &Change<'_>) -> bool {
        self.key == change.key
            && self.columns.len() == change.fields.len()
            && change.fields.iter().enumerate().all(|(at, (field, _))| {
                let column = match self.columns.get(at) {
                    Some(column) if column.name == field.name => Some(column),
                    _ => self.columns.iter().find(|column| column.name == field.name),
                };
                column.is_some_and(|column| field.kind.as_ref().is_none_or(|kind| *kind == column.kind))
            })
    }
}
