//! A table whose rows are shown.

use super::value::write_json_string;
use crate::schema::TableSchema;
use crate::table_map::TableMap;
use crate::wire::WireType;

pub struct KnownTable {
    pub map: TableMap,
    pub name: String,
    /// `"name":` of each column, escaped.
    pub names: Vec<Vec<u8>>,
    pub wanted: bool,
}

impl KnownTable {
    /// `wanted`: names of tables. Empty: all.
    pub fn new(map: TableMap, wanted: &[String]) -> Self {
        let names = (0..map.columns.len()).map(|index| {
            let mut escaped = Vec::new();
            write_json_string(&map.column_name(index), &mut escaped);
            escaped.push(b':');
            escaped
        });
        let (names, name) = (names.collect(), map.name());
        let wanted = wanted.is_empty() || wanted.contains(&name);
        Self { map, name, names, wanted }
    }
}

/// What a map without full metadata lacks, from a schema that fits it.
pub fn complete(map: &mut TableMap, schema: &TableSchema) {
    if map.columns.len() != schema.columns.len() {
        return;
    }
    for (column, known) in map.columns.iter_mut().zip(&schema.columns) {
        column.name.get_or_insert_with(|| known.name.clone());
        if let (WireType::Int { width, .. }, None) = (column.wire, column.unsigned) {
            column.wire = WireType::Int { width, unsigned: known.unsigned };
        }
        if let (Some(fsp), Some(digits)) = (column.wire.old_fraction(), known.fsp) {
            fsp.get_or_insert(digits);
        }
        if let (None, Some(labels)) = (&column.labels, &known.labels) {
            column.labels = Some(labels.iter().map(|label| label.as_bytes().into()).collect());
        }
    }
}
