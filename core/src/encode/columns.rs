//! A table as encoders need it: its columns, with what is written before each value, and its key.

use std::sync::Arc;

use serde_json::{json, Value};

use super::json_text::quoted;
use super::route::{Deciding, Route};
use crate::described_column::described_column;
use crate::error::{DecodeError, Result};
use crate::plan;
use crate::schema::{ColumnSchema, ColumnType, TableSchema};
use crate::table_map::{MapColumn, TableMap};
use crate::wire::WireType;

pub struct Column {
    pub schema: ColumnSchema,
    pub kind: ColumnType,
    /// `"name":`
    pub head: Vec<u8>,
    /// Labels of ENUM and SET as JSON strings.
    pub labels: Vec<Vec<u8>>,
    pub fsp: u8,
    /// Of a list: what its elements are.
    pub element: Option<Box<Column>>,
    /// A POINT: the catalog does not say which spatial type a column has, but maps do.
    pub is_point: bool,
}

impl Column {
    /// Whether a text can stand for a value of it that is not available.
    pub fn takes_placeholder(&self) -> bool {
        match &self.kind {
            ColumnType::Text { .. } | ColumnType::Json | ColumnType::Binary { .. } => true,
            ColumnType::List(of) => matches!(**of, ColumnType::Text { .. }),
            _ => false,
        }
    }
}

/// A table under one definition.
pub struct Table {
    /// The number of the table, which stays the same when its definition changes.
    pub number: u32,
    pub database: String,
    pub name: String,
    pub columns: Vec<Column>,
    /// Positions of the key's columns, in the key's order.
    pub key: Vec<usize>,
    /// Fits the columns. It may have hidden columns behind them.
    pub map: TableMap,
    pub schema: Arc<TableSchema>,
    pub route: Option<Deciding>,
    /// Columns that messages do not have.
    pub omitted: Vec<usize>,
}

/// The columns of a table that messages have (`keep`), or that they do not have.
pub struct Chosen {
    pub keep: bool,
    pub names: Vec<String>,
}

impl Table {
    /// The table of a map. `known`: its definition; without one, the map must have all that is needed.
    pub fn of(map: TableMap, known: Option<&Arc<TableSchema>>, number: u32, offset: u64) -> Result<Self> {
        let schema = match known {
            Some(schema) => schema.clone(),
            None => Arc::new(described(&map, offset)?),
        };
        let map = plan::fit(map, &schema).map_err(|difference| {
            let name = schema.name();
            let reason = format!("the log does not fit the definition of {name}: {difference}");
            DecodeError::of_table(name, reason, offset)
        })?;
        Self::fitting(map, schema, number, offset)
    }

    /// The table of a map that fits its definition.
    pub fn fitting(map: TableMap, schema: Arc<TableSchema>, number: u32, offset: u64) -> Result<Self> {
        let pairs = schema.columns.iter().zip(&map.columns);
        let columns =
            pairs.map(|(schema, of_map)| column(schema, of_map)).collect::<std::result::Result<Vec<_>, _>>();
        let columns = columns.map_err(|reason| DecodeError::of_table(schema.name(), reason, offset))?;
        Ok(Self {
            number,
            database: map.database.clone(),
            name: map.table.clone(),
            columns,
            key: schema.key_positions(),
            map,
            schema,
            route: None,
            omitted: Vec::new(),
        })
    }
}

impl Table {
    /// The same table, whose messages have a route.
    pub fn routed(mut self, route: Option<&Route>) -> Self {
        let position =
            |name: &str| self.columns.iter().position(|column| column.schema.name.eq_ignore_ascii_case(name));
        self.route = route.map(|route| route.of(&self.key, position));
        self
    }

    /// The same table, whose messages have the chosen columns.
    pub fn choosing(mut self, chosen: Option<&Chosen>) -> Self {
        let Some(chosen) = chosen else { return self };
        let named = |index: &usize| {
            let name = &self.columns[*index].schema.name;
            chosen.names.iter().any(|one| one.eq_ignore_ascii_case(name))
        };
        self.omitted = (0..self.columns.len()).filter(|index| named(index) != chosen.keep).collect();
        self.key.retain(|index| !self.omitted.contains(index));
        self
    }
}

pub fn column(schema: &ColumnSchema, map: &MapColumn) -> std::result::Result<Column, String> {
    let kind = schema.column_type()?;
    let labels = match &kind {
        ColumnType::Enum { labels, .. } | ColumnType::Set { labels, .. } => labels.as_slice(),
        _ => &[],
    };
    Ok(Column {
        head: format!("{}:", quoted(&schema.name)).into_bytes(),
        labels: labels.iter().map(|label| quoted(label).into_bytes()).collect(),
        fsp: schema.fsp.unwrap_or(0),
        is_point: schema.kind == "point" || schema.column_type == "point" || map.geometry == Some(1),
        element: schema.element.as_ref().map(|element| column(element, map).map(Box::new)).transpose()?,
        schema: schema.clone(),
        kind,
    })
}

/// The definition that a map with full metadata describes.
fn described(map: &TableMap, offset: u64) -> Result<TableSchema> {
    let name = map.name();
    if map.columns.iter().any(|column| column.name.is_none()) {
        let reason = format!(
            "the log does not have the names of the columns of {name} (binlog_row_metadata is not FULL)"
        );
        return Err(DecodeError::of_names(name, reason, offset));
    }
    if let Some(column) = map.undefined_column() {
        let column = map.column_name(column);
        let reason = format!(
            "the log does not say how long the values of `{column}` of {name} are (its form is from before \
             MariaDB 10.1.2); give its definition by --ddl or --server"
        );
        return Err(DecodeError::of_names(name, reason, offset));
    }
    let visible =
        map.columns.iter().take_while(|column| !column.name.as_deref().is_some_and(plan::is_hidden_name));
    let columns: Vec<Value> = visible
        .map(|column| {
            let mut fields = described_column(column.name.clone().unwrap_or_default(), column);
            if let (WireType::Geometry { .. }, Some(kind)) = (column.wire, column.geometry) {
                fields["type"] = json!(geometry_name(kind));
            }
            fields
        })
        .collect();
    let key: Vec<String> = map
        .primary_key
        .as_deref()
        .unwrap_or_default()
        .iter()
        .map(|position| map.column_name(*position))
        .collect();
    let document = json!({"database": map.database, "table": map.table, "key": key, "columns": columns});
    TableSchema::from_json(&document.to_string())
}

fn geometry_name(kind: u8) -> &'static str {
    const NAMES: [&str; 8] = [
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    ];
    NAMES.get(usize::from(kind)).copied().unwrap_or("geometry")
}
