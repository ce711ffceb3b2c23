//! The definition of a column, from what the log says of it.

use serde_json::{json, Map, Value};

use crate::charset::{collation_charset, Charset};
use crate::table_map::MapColumn;
use crate::wire::WireType;

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
    let kind = match column.wire.usual() {
        WireType::Null | WireType::Open(_) | WireType::Sent(_) => "binary",
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
        // Only definitions say what the elements of lists are.
        WireType::Json { .. } | WireType::JsonText { .. } | WireType::List => "json",
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
