//! How the rows of a table are written.

use serde::Deserialize;

use super::{body_of, text, DEFINITION, USE};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::records::{Record, RecordFile, HEADER_SIZE};
use crate::schema::{ColumnSchema, ColumnType, TableSchema};
use crate::table_map::{MapColumn, TableMap};
use crate::window::Direction;
use crate::wire::{neutral, WireType};

/// Ids of collations: of bytes, and of texts in UTF-8.
const BINARY: u16 = 63;
const UTF8: u16 = 46;

/// Which table a record defines: of a definition, or of the use of an earlier one.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    pub id: u64,
    pub database: &'a str,
    pub table: &'a str,
    /// The position of the earlier one in the file.
    pub at: Option<u64>,
}

impl<'a> Named<'a> {
    pub fn parse(record: &Record<'a>) -> Result<Self> {
        let mut body = body_of(record);
        let id = body.uint_le(4, "id of a definition")?;
        let at = match record.kind {
            USE => Some(body.u64("position of a definition")?),
            _ => None,
        };
        let (database, table) = (text(&mut body)?, text(&mut body)?);
        Ok(Self { id, database, table, at })
    }

    pub fn is_of(&self, table: &TableSchema) -> bool {
        self.database == table.database && self.table == table.table
    }
}

/// The body of the definition at a position of a file, and its offset in the log.
pub fn read(file: &mut RecordFile, at: u64) -> Result<(Vec<u8>, u64)> {
    let offset = file.base() + at;
    let missing = || DecodeError::new("a definition that is used is not where it should be", offset);
    if at < file.start() {
        return Err(missing());
    }
    let header = file.header(at, u64::MAX)?;
    if header.kind != DEFINITION {
        return Err(missing());
    }
    Ok((file.record(at, header, Direction::Forward)?.body.to_vec(), offset))
}

/// A definition up to its columns.
#[derive(Debug, Clone, Copy)]
pub struct Definition<'a> {
    pub id: u64,
    pub database: &'a str,
    pub table: &'a str,
    json: &'a [u8],
    offset: u64,
}

/// How images of a table's rows are written. `id`: of its definition. `offset`: of the same, for errors.
/// `form`: of the values of the column with this number and type.
pub fn table_map(
    id: u64,
    schema: &TableSchema,
    offset: u64,
    form: impl Fn(usize, &ColumnType) -> WireType,
) -> Result<TableMap> {
    let fail = |reason: String| DecodeError::of_table(schema.name(), reason, offset);
    let columns = schema.columns.iter().enumerate().map(|(index, column)| {
        let kind = column.column_type().map_err(fail)?;
        let labels = match &kind {
            ColumnType::Enum { labels, .. } | ColumnType::Set { labels, .. } => Some(labels),
            _ => None,
        };
        Ok(MapColumn {
            wire: form(index, &kind),
            nullable: column.nullable,
            unsigned: None,
            name: Some(column.name.clone()),
            collation: Some(if matches!(kind, ColumnType::Binary { .. }) { BINARY } else { UTF8 }),
            labels: labels.map(|labels| labels.iter().map(|label| label.as_bytes().into()).collect()),
            geometry: None,
            visible: Some(!column.invisible),
            element: match &kind {
                ColumnType::List(element) => Some((**element).clone()),
                _ => None,
            },
            neutral: neutral(&kind),
        })
    });
    Ok(TableMap {
        table_id: id,
        database: schema.database.clone(),
        table: schema.table.clone(),
        columns: columns.collect::<Result<_>>()?,
        primary_key: Some(schema.key_positions()),
        required: Vec::new(),
    })
}

#[derive(Deserialize)]
struct Columns {
    #[serde(default)]
    catalog: String,
    #[serde(default)]
    key: Vec<String>,
    columns: Vec<ColumnSchema>,
}

impl<'a> Definition<'a> {
    /// `offset`: of its record in the log.
    pub fn parse(body: &'a [u8], offset: u64) -> Result<Self> {
        let mut body = Cursor::new(body, offset + HEADER_SIZE as u64);
        let id = body.uint_le(4, "id of a definition")?;
        let (database, table) = (text(&mut body)?, text(&mut body)?);
        Ok(Self { id, database, table, json: body.rest(), offset })
    }

    pub fn is_of(&self, table: &TableSchema) -> bool {
        self.database == table.database && self.table == table.table
    }

    /// The table as the log defines it.
    pub fn schema(&self) -> Result<TableSchema> {
        let fail = |reason: String| {
            let name = crate::table_name::text(self.database, self.table);
            DecodeError::of_table(&*name, format!("the definition of {name}: {reason}"), self.offset)
        };
        let Columns { catalog, key, columns } =
            serde_json::from_slice(self.json).map_err(|error| fail(error.to_string()))?;
        let schema = TableSchema {
            database: self.database.to_owned(),
            table: self.table.to_owned(),
            catalog,
            version: 0,
            key,
            columns,
        };
        schema.check().map_err(|error| fail(error.reason().to_owned()))?;
        Ok(schema)
    }

    /// How images are written. `schema`: that of the definition.
    pub fn map_of(
        &self,
        schema: &TableSchema,
        form: impl Fn(usize, &ColumnType) -> WireType,
    ) -> Result<TableMap> {
        table_map(self.id, schema, self.offset, form)
    }

    /// The table, if `known` says the same of the columns. Otherwise the table's rows cannot be read by it.
    pub fn fitted(&self, known: &TableSchema) -> Result<TableSchema> {
        let schema = self.schema()?;
        let names = |columns: &[ColumnSchema]| {
            columns.iter().map(|column| (column.name.clone(), column.column_type())).collect::<Vec<_>>()
        };
        if names(&schema.columns) != names(&known.columns) {
            let (name, version) = (known.name(), known.version);
            let reason = format!("the log's definition of {name} is not its schema (version {version})");
            return Err(DecodeError::of_table(name, reason, self.offset));
        }
        Ok(schema)
    }

    /// What it says of its table, as JSON: `key` and `columns`.
    pub fn json(&self) -> &'a [u8] {
        self.json
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The definition in the form of `described::first_described`.
    pub fn described(&self, known: &TableSchema) -> Result<String> {
        let schema = self.schema()?;
        let raw: serde_json::Value = serde_json::from_slice(self.json).unwrap_or_default();
        let listed = raw.get("columns").and_then(|columns| columns.as_array()).cloned().unwrap_or_default();
        let columns: Vec<serde_json::Value> = schema
            .columns
            .iter()
            .zip(listed)
            .map(|(column, raw)| {
                let same = known.columns.iter().find(|other| other.name == column.name);
                match same.is_some_and(|other| other.column_type() == column.column_type()) {
                    true => serde_json::json!({"name": column.name, "known": true}),
                    false => raw,
                }
            })
            .collect();
        let document = serde_json::json!({"offset": self.offset, "key": schema.key, "columns": columns});
        Ok(document.to_string())
    }
}
