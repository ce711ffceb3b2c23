//! The definition of a table from its table map (`binlog_row_metadata = FULL`). A log that is older than the
//! catalog's definition is decoded with it.

use serde_json::{json, Map, Value};

use crate::charset::{collation_charset, Charset};
use crate::error::Result;
use crate::event::EventKind;
use crate::log_file::{Direction, LogFile};
use crate::plan;
use crate::schema::TableSchema;
use crate::segment_file::SegmentFile;
use crate::table_map::{MapColumn, TableMap, TableMapHead};
use crate::wire::WireType;

/// The first table map of `known`'s table whose events end in `(start, end]`, as JSON:
/// `{"offset", "key": [name, …] | null, "columns": [{"name", "known": true} | {"name", "type", …}]}`.
///
/// A column is `known` if `known` has one of this name whose type fits the map. Other columns have the fields
/// of
/// `penstock.model.schema.Column`. None: there is no map of the table, or the maps have no names.
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

/// A column as `TableSchema` has it, as far as the map describes it.
pub fn described_column(name: String, column: &MapColumn) -> Value {
    let mut fields = Map::new();
    let charset = column.collation.and_then(collation_charset).unwrap_or("utf8mb4");
    let text = charset != "binary";
    let labels = || -> Vec<String> {
        let charset = Charset::from_name(charset).unwrap_or(Charset::Utf8);
        let stored = column.labels.as_deref().unwrap_or_default();
        stored
            .iter()
            .map(|label| {
                let mut bytes = Vec::new();
                charset.append(label, &mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
            .collect()
    };
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let kind = match column.wire {
        WireType::Null => "binary",
        WireType::Int { width, unsigned } => {
            set("unsigned", json!(unsigned));
            match width {
                1 => "tinyint",
                2 => "smallint",
                3 => "mediumint",
                4 => "int",
                _ => "bigint",
            }
        }
        WireType::Float => "float",
        WireType::Double => "double",
        WireType::Decimal { precision, scale } => {
            set("precision", json!(precision));
            set("scale", json!(scale));
            "decimal"
        }
        WireType::Year | WireType::ShortYear => "year",
        WireType::Date => "date",
        WireType::OldTime { .. } => "time",
        WireType::OldDateTime { .. } => "datetime",
        WireType::OldTimestamp { .. } => "timestamp",
        WireType::Time { fsp } => {
            set("fsp", json!(fsp));
            "time"
        }
        WireType::DateTime { fsp } => {
            set("fsp", json!(fsp));
            "datetime"
        }
        WireType::Timestamp { fsp } => {
            set("fsp", json!(fsp));
            "timestamp"
        }
        WireType::Char { length } => {
            set("length", json!(if text { length / bytes_max(charset) } else { length }));
            if text {
                "char"
            } else {
                "binary"
            }
        }
        WireType::Varchar { length } => {
            set("length", json!(if text { length / bytes_max(charset) } else { length }));
            if text {
                "varchar"
            } else {
                "varbinary"
            }
        }
        WireType::Blob { prefix } | WireType::Compressed { prefix } => match (prefix, text) {
            (1, true) => "tinytext",
            (1, false) => "tinyblob",
            (2, true) => "text",
            (2, false) => "blob",
            (3, true) => "mediumtext",
            (3, false) => "mediumblob",
            (_, true) => "longtext",
            (_, false) => "longblob",
        },
        WireType::Boolean => "boolean",
        WireType::Instant => "timestamp",
        WireType::Json { .. } | WireType::JsonText { .. } => "json",
        WireType::Geometry { .. } => "geometry",
        WireType::Vector { .. } => "vector",
        WireType::Bit { bits } => {
            set("length", json!(bits));
            "bit"
        }
        WireType::Enum { .. } => {
            set("labels", json!(labels()));
            "enum"
        }
        WireType::Set { .. } => {
            set("labels", json!(labels()));
            "set"
        }
    };
    if matches!(kind, "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set") {
        set("charset", json!(charset));
    }
    set("name", json!(name));
    set("type", json!(kind));
    set("nullable", json!(column.nullable));
    set("invisible", json!(column.visible == Some(false)));
    Value::Object(fields)
}

/// Most bytes of a character. A map counts bytes, a definition counts characters.
fn bytes_max(charset: &str) -> u16 {
    match charset {
        "utf8mb4" | "utf16" | "utf16le" | "utf32" | "gb18030" => 4,
        "utf8" | "utf8mb3" | "ujis" | "eucjpms" => 3,
        "ucs2" | "big5" | "gbk" | "gb2312" | "euckr" | "sjis" | "cp932" => 2,
        _ => 1,
    }
}
