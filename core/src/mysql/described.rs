//! The definition of a table from its table map (`binlog_row_metadata = FULL`). A log that is older than the
//! catalog's definition is decoded with it.

use serde_json::{json, Value};

use crate::described_column::described_column;
use crate::error::Result;
use crate::mysql::event::EventKind;
use crate::mysql::log_file::LogFile;
use crate::mysql::table_map::TableMapHead;
use crate::plan;
use crate::schema::TableSchema;
use crate::segment_file::SegmentFile;
use crate::table_map::TableMap;
use crate::window::Direction;

/// The first table map of `known`'s table whose events end in `(start, end]`, as JSON:
/// `{"offset", "key": [name, …] | null, "columns": [{"name", "known": true} | {"name", "type", …}]}`.
///
/// A column is `known` if `known` has one of this name whose type fits the map. Other columns have the
/// fields of `penstock.model.schema.Column`. None: there is no map of the table, or the maps have no names.
pub fn first_described(
    file: &SegmentFile,
    base: u64,
    start: u64,
    end: u64,
    known: &TableSchema,
) -> Result<Option<String>> {
    let name = file.name();
    let mut file = LogFile::open(file, base)?;
    let mut find = || {
        let format = file.format().clone();
        file.read_to(end.saturating_sub(base));
        let mut position = start.saturating_sub(base).max(4);
        while position < end.saturating_sub(base) {
            let header = file.header(position, end - base)?;
            if header.kind == EventKind::TABLE_MAP {
                let event = file.event(position, header, Direction::Forward)?;
                let head = TableMapHead::parse(&event, &format)?;
                if head.database == known.database.as_bytes() && head.table == known.table.as_bytes() {
                    let map = TableMap::parse(&event, &format)?;
                    let named = map.columns.iter().all(|column| column.name.is_some());
                    return Ok(named.then(|| describe(&map, known, base + position).to_string()));
                }
            }
            position += u64::from(header.size);
        }
        Ok(None)
    };
    find().map_err(|error: crate::error::DecodeError| error.in_file(name))
}

fn describe(map: &TableMap, known: &TableSchema, offset: u64) -> Value {
    let columns: Vec<Value> = map
        .columns
        .iter()
        .filter(|column| !column.name.as_deref().is_some_and(plan::is_hidden_name))
        .map(|column| {
            let name = column.name.clone().unwrap_or_default();
            let same = known.columns.iter().find(|candidate| candidate.name == name);
            match same {
                Some(schema) if plan::fits(column, schema) => json!({"name": name, "known": true}),
                _ => described_column(name, column),
            }
        })
        .collect();
    let key = map
        .primary_key
        .as_ref()
        .map(|positions| positions.iter().map(|position| map.column_name(*position)).collect::<Vec<_>>());
    json!({"offset": offset, "key": key, "columns": columns})
}
