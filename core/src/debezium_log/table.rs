//! Tables as the log defines them, and the statements by which their definitions change.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::event::EventKind;

use super::events::{put_bits, put_length, Packets};
use super::message::{Change, Described};
use super::order::Position;
use super::value::{check_name, put_name, Kind, Refused};

/// The most columns of a table, as in the servers whose log format this is.
pub const COLUMNS_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// What rows have that were written before the column was added: a literal, and the value in row images.
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

    pub fn create(&self) -> String {
        let mut parts: Vec<String> =
            self.columns.iter().map(|column| self.definition(column, false)).collect();
        if !self.key.is_empty() {
            parts.push(format!("PRIMARY KEY ({})", names(&self.key)));
        }
        // No database has to be asked for its defaults.
        let options = "CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin";
        format!("CREATE TABLE {} ({}) {options}", self.quoted(), parts.join(", "))
    }

    pub fn truncate(&self) -> String {
        format!("TRUNCATE TABLE {}", self.quoted())
    }

    /// The statement that turns `self` into `after`; None: they are the same.
    pub fn alter(&self, after: &Table) -> Option<String> {
        let mut parts = Vec::new();
        if self.key != after.key && !self.key.is_empty() {
            parts.push("DROP PRIMARY KEY".to_owned());
        }
        for column in &self.columns {
            if after.place_of(&column.name).is_none() {
                parts.push(format!("DROP COLUMN {}", quoted(&column.name)));
            }
        }
        for column in &after.columns {
            let definition = after.definition(column, self.place_of(&column.name).is_none());
            match self.columns.iter().find(|known| known.name == column.name) {
                None => parts.push(format!("ADD COLUMN {definition}")),
                Some(known) if known.kind != column.kind => parts.push(format!("MODIFY COLUMN {definition}")),
                Some(_) => {}
            }
        }
        if self.key != after.key && !after.key.is_empty() {
            parts.push(format!("ADD PRIMARY KEY ({})", names(&after.key)));
        }
        (!parts.is_empty()).then(|| format!("ALTER TABLE {} {}", self.quoted(), parts.join(", ")))
    }

    /// `added`: to a table that has rows, which get the default.
    fn definition(&self, column: &Column, added: bool) -> String {
        let null = if self.key.contains(&column.name) { "NOT NULL" } else { "NULL" };
        let default = match &column.default {
            Some((literal, _)) if added => format!(" DEFAULT {literal}"),
            _ => String::new(),
        };
        format!("{} {} {null}{default}", quoted(&column.name), column.kind.sql())
    }

    fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.database), quoted(&self.table))
    }

    /// Writes the event that describes the table for row events with this id.
    pub fn map(&self, id: u64, timestamp: u32, out: &mut Packets) {
        let mut body = id.to_le_bytes()[..6].to_vec();
        body.extend(1u16.to_le_bytes());
        for name in [&self.database, &self.table] {
            body.push(name.len() as u8);
            body.extend_from_slice(name.as_bytes());
            body.push(0);
        }
        put_length(&mut body, self.columns.len());
        body.extend(self.columns.iter().map(|column| column.kind.type_code()));
        let mut metadata = Vec::new();
        self.columns.iter().for_each(|column| column.kind.put_metadata(&mut metadata));
        put_length(&mut body, metadata.len());
        body.extend(metadata);
        put_bits(&mut body, self.columns.iter().map(|column| !self.key.contains(&column.name)));
        self.put_optional(&mut body);
        out.event(EventKind::TABLE_MAP, timestamp, 0, &body);
    }

    fn put_optional(&self, body: &mut Vec<u8>) {
        let mut field = |kind: u8, bytes: Vec<u8>| {
            if !bytes.is_empty() {
                body.push(kind);
                put_length(body, bytes.len());
                body.extend(bytes);
            }
        };
        let numbers = self.columns.iter().filter(|column| column.kind.is_number()).count();
        field(1, vec![0; numbers.div_ceil(8)]);
        let mut collations = Vec::new();
        for collation in self.columns.iter().filter_map(|column| column.kind.collation()) {
            put_length(&mut collations, collation.into());
        }
        field(3, collations);
        let mut names = Vec::new();
        self.columns.iter().for_each(|column| put_name(&column.name, &mut names));
        field(4, names);
        field(7, vec![0; self.columns.iter().filter(|column| column.kind == Kind::Geometry).count()]);
        let mut key = Vec::new();
        self.key.iter().filter_map(|name| self.place_of(name)).for_each(|place| put_length(&mut key, place));
        field(8, key);
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn names(key: &[String]) -> String {
    key.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
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
        let Some(kind) = field.kind else { continue };
        match after.columns.iter_mut().find(|column| column.name == field.name) {
            Some(column) if column.kind == kind => {}
            Some(column) if age == Age::Newer => column.kind = kind,
            Some(_) => {}
            None => {
                check_name(&field.name)?;
                after.columns.push(Column { name: field.name.clone(), kind, default: default.clone() });
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
                column.is_some_and(|column| field.kind.is_none_or(|kind| kind == column.kind))
            })
    }
}
