//! Fits a table map to a `TableSchema`: checks that both have the same columns, so that the row images of the
//! map can become rows of the schema.

use crate::charset::Charset;
use crate::schema::{ColumnSchema, ColumnType, TableSchema};
use crate::table_map::{MapColumn, TableMap};
use crate::wire::{Extent, WireType};

/// Names of the hidden columns behind functional indexes: an MD5 in hexadecimal (8.0.15), `!hidden!…`
/// (later).
pub fn is_hidden_name(name: &str) -> bool {
    name.starts_with("!hidden!") || (name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Makes `map` fit for decoding rows of `schema`: its columns get the schema's names and signedness.
///
/// The map may have more columns after the schema's last one, because 8.0.15 writes the hidden columns of
/// functional indexes, and MariaDB those behind a UNIQUE of a BLOB. If the map has names, they must be names
/// of such columns. Columns of system versioning are refused: rows are earlier versions, too. The error says
/// what differs.
pub fn fit(mut map: TableMap, schema: &TableSchema) -> Result<TableMap, String> {
    let (expected, found) = (schema.columns.len(), map.columns.len());
    if found < expected {
        return Err(format!("the log has {found} columns, the schema {expected}"));
    }
    for extra in &map.columns[expected..] {
        if let Some(name) = extra.name.as_ref().filter(|name| !is_hidden_name(name)) {
            return Err(format!("the log has a column `{name}` that the schema lacks"));
        }
        if extra.wire.extent() == Extent::Unknown {
            return Err("the log has a hidden column whose length only its definition says".into());
        }
        if extra.wire == (WireType::Timestamp { fsp: 6 }) && !extra.nullable {
            return Err("the log has columns of system versioning that the schema lacks".into());
        }
    }
    for (index, (column, schema)) in map.columns.iter_mut().zip(&schema.columns).enumerate() {
        fit_column(column, schema)
            .map_err(|difference| format!("column {} `{}`: {difference}", index + 1, schema.name))?;
    }
    Ok(map)
}

/// Whether a column of the map can be decoded as one of a schema.
pub fn fits(column: &MapColumn, schema: &ColumnSchema) -> bool {
    fit_column(&mut column.clone(), schema).is_ok()
}

fn fit_column(column: &mut MapColumn, schema: &ColumnSchema) -> Result<(), String> {
    if let Some(name) = column.name.as_ref().filter(|name| **name != schema.name) {
        return Err(format!("the log calls it `{name}`"));
    }
    let kind = schema.column_type()?;
    if !same_type(column.wire, &kind, schema) {
        let declared = if schema.column_type.is_empty() { &schema.kind } else { &schema.column_type };
        return Err(format!("the log has {:?}, the schema {declared}", column.wire));
    }
    if let (ColumnType::Integer { unsigned, .. }, WireType::Int { width, .. }) = (&kind, column.wire) {
        if column.unsigned.is_some_and(|found| found != *unsigned) {
            return Err(format!("unsigned in the {} only", if *unsigned { "schema" } else { "log" }));
        }
        column.wire = WireType::Int { width, unsigned: *unsigned };
    }
    if kind == (ColumnType::Year { short: true }) {
        column.wire = WireType::ShortYear;
    }
    if let Some(fsp) = column.wire.old_fraction() {
        *fsp = schema.fsp.or(Some(0));
    }
    check_charset(column, &kind)?;
    check_labels(column, &kind)?;
    column.name = Some(schema.name.clone());
    Ok(())
}

fn same_type(wire: WireType, kind: &ColumnType, schema: &ColumnSchema) -> bool {
    match (wire.usual(), kind) {
        (WireType::Int { width, .. }, ColumnType::Integer { width: expected, .. }) => width == *expected,
        (WireType::Decimal { precision, scale }, ColumnType::Decimal { precision: p, scale: s }) => {
            (precision, scale) == (*p, *s)
        }
        (WireType::Float, ColumnType::Float) | (WireType::Double, ColumnType::Double) => true,
        (WireType::Year | WireType::ShortYear, ColumnType::Year { .. })
        | (WireType::Date, ColumnType::Date) => true,
        (WireType::Bit { bits }, ColumnType::Bit { bits: expected }) => bits == u16::from(*expected),
        (WireType::Time { fsp }, ColumnType::Time { fsp: expected })
        | (WireType::DateTime { fsp }, ColumnType::DateTime { fsp: expected })
        | (WireType::Timestamp { fsp }, ColumnType::Timestamp { fsp: expected }) => fsp == *expected,
        (WireType::OldTime { fsp }, ColumnType::Time { fsp: expected })
        | (WireType::OldDateTime { fsp }, ColumnType::DateTime { fsp: expected })
        | (WireType::OldTimestamp { fsp }, ColumnType::Timestamp { fsp: expected }) => {
            fsp.is_none_or(|fsp| fsp == *expected)
        }
        (WireType::Enum { width }, ColumnType::Enum { labels, .. }) => {
            width == if labels.len() < 256 { 1 } else { 2 }
        }
        (WireType::Set { width }, ColumnType::Set { labels, .. }) => {
            let bytes = labels.len().div_ceil(8);
            usize::from(width) == if bytes > 4 { 8 } else { bytes }
        }
        (WireType::Char { length }, ColumnType::Binary { padded: Some(expected) }) => {
            u32::from(length) == *expected
        }
        (WireType::Char { length }, ColumnType::Network(network)) => usize::from(length) == network.size(),
        (WireType::Char { .. }, ColumnType::Text { .. }) => schema.kind == "char",
        (WireType::Varchar { length }, ColumnType::Binary { padded: None }) => {
            schema.kind == "varbinary" && schema.length.is_none_or(|expected| expected == u32::from(length))
        }
        (WireType::Varchar { .. }, ColumnType::Text { .. }) => schema.kind == "varchar",
        (WireType::Blob { prefix }, ColumnType::Text { .. } | ColumnType::Binary { padded: None }) => {
            prefix == blob_prefix(&schema.kind)
        }
        (WireType::Compressed { .. }, ColumnType::Text { .. } | ColumnType::Binary { padded: None }) => {
            !matches!(schema.kind.as_str(), "char" | "binary")
        }
        // MariaDB.
        (WireType::Varchar { .. }, ColumnType::Vector) => true,
        (WireType::Json { .. }, ColumnType::Json)
        | (WireType::Geometry { .. }, ColumnType::Geometry)
        | (WireType::Vector { .. }, ColumnType::Vector) => true,
        _ => false,
    }
}

fn blob_prefix(kind: &str) -> u8 {
    match kind {
        "tinyblob" | "tinytext" => 1,
        "blob" | "text" => 2,
        "mediumblob" | "mediumtext" => 3,
        "longblob" | "longtext" => 4,
        _ => 0,
    }
}

fn check_charset(column: &MapColumn, kind: &ColumnType) -> Result<(), String> {
    let expected = match kind {
        ColumnType::Text { charset, .. }
        | ColumnType::Enum { charset, .. }
        | ColumnType::Set { charset, .. } => *charset,
        ColumnType::Binary { .. } => Charset::Binary,
        _ => return Ok(()),
    };
    match column.collation.map(|id| (id, Charset::from_collation(id))) {
        // If the id is unknown, the catalog's collation is trusted.
        None | Some((_, None)) => Ok(()),
        Some((_, Some(found))) if found == expected => Ok(()),
        Some((id, _)) => Err(format!("the log has collation {id}, which is of another character set")),
    }
}

fn check_labels(column: &MapColumn, kind: &ColumnType) -> Result<(), String> {
    let (ColumnType::Enum { labels, charset } | ColumnType::Set { labels, charset }) = kind else {
        return Ok(());
    };
    let Some(found) = &column.labels else { return Ok(()) };
    let mut text = Vec::new();
    let same = found.len() == labels.len()
        && found.iter().zip(labels).all(|(found, label)| {
            text.clear();
            charset.append(found, &mut text);
            text == label.as_bytes()
        });
    if same {
        Ok(())
    } else {
        Err("the log has other labels".into())
    }
}
