//! Connect's schemas of Debezium's messages, as its JSON converter writes them.

use std::fmt::Write as _;

use super::columns::{Column, Table};
use super::debezium_options::{BigintUnsigned, Binaries, Decimals, Options, TimePrecision};
use super::json_text::quoted;
use super::source_info::{Kind, SourceInfo};
use crate::schema::ColumnType;

/// Type, and name, version and parameters of a semantic type.
struct Type {
    kind: &'static str,
    /// Fields of a struct, or items of an array.
    inner: String,
    name: &'static str,
    parameters: String,
}

fn of(kind: &'static str) -> Type {
    Type { kind, inner: String::new(), name: "", parameters: String::new() }
}

fn named(kind: &'static str, name: &'static str) -> Type {
    Type { name, ..of(kind) }
}

fn precise(precision: u8, scale: u8) -> Type {
    Type {
        parameters: format!("{{\"scale\":\"{scale}\",\"connect.decimal.precision\":\"{precision}\"}}"),
        ..named("bytes", "org.apache.kafka.connect.data.Decimal")
    }
}

fn decimal(options: &Options, precision: u8, scale: u8) -> Type {
    match options.decimal_handling_mode {
        Decimals::Precise => precise(precision, scale),
        Decimals::Double => of("double"),
        Decimals::String => of("string"),
    }
}

fn allowed(labels: &[String]) -> String {
    format!("{{\"allowed\":{}}}", quoted(&labels.join(",")))
}

const WKB: &str = "{\"type\":\"bytes\",\"optional\":false,\"field\":\"wkb\"},\
                   {\"type\":\"int32\",\"optional\":true,\"field\":\"srid\"}";

fn type_of(options: &Options, column: &Column) -> Type {
    use TimePrecision::{AdaptiveTimeMicroseconds, Connect, Isostring, Microseconds, Nanoseconds};
    let mode = options.time_precision_mode;
    match &column.kind {
        ColumnType::Integer { width: 1, .. } | ColumnType::Integer { width: 2, unsigned: false } => {
            of("int16")
        }
        ColumnType::Integer { width: 2 | 3, .. } | ColumnType::Integer { width: 4, unsigned: false } => {
            of("int32")
        }
        ColumnType::Integer { width: 8, unsigned: true }
            if options.bigint_unsigned_handling_mode == BigintUnsigned::Precise =>
        {
            precise(20, 0)
        }
        ColumnType::Integer { .. } => of("int64"),
        ColumnType::Decimal { precision, scale } => decimal(options, *precision, *scale),
        ColumnType::Numeric => match options.decimal_handling_mode {
            Decimals::Precise => Type {
                inner: ",\"fields\":[{\"type\":\"int32\",\"optional\":false,\"field\":\"scale\"},\
                        {\"type\":\"bytes\",\"optional\":false,\"field\":\"value\"}]"
                    .to_owned(),
                ..named("struct", "io.debezium.data.VariableScaleDecimal")
            },
            Decimals::Double => of("double"),
            Decimals::String => of("string"),
        },
        ColumnType::Interval => named("string", "io.debezium.time.Interval"),
        ColumnType::Float => of("float"),
        ColumnType::Double => of("double"),
        ColumnType::Boolean | ColumnType::Bit { bits: 1 } => of("boolean"),
        ColumnType::Bit { bits } => Type {
            parameters: format!("{{\"length\":\"{bits}\"}}"),
            ..named("bytes", "io.debezium.data.Bits")
        },
        ColumnType::Year { .. } => named("int32", "io.debezium.time.Year"),
        ColumnType::Date => match mode {
            Connect => named("int32", "org.apache.kafka.connect.data.Date"),
            Isostring => named("string", "io.debezium.time.IsoDate"),
            _ => named("int32", "io.debezium.time.Date"),
        },
        ColumnType::DateTime { fsp } => match mode {
            AdaptiveTimeMicroseconds if *fsp <= 3 => named("int64", "io.debezium.time.Timestamp"),
            AdaptiveTimeMicroseconds | Microseconds => named("int64", "io.debezium.time.MicroTimestamp"),
            Connect => named("int64", "org.apache.kafka.connect.data.Timestamp"),
            Nanoseconds => named("int64", "io.debezium.time.NanoTimestamp"),
            Isostring => named("string", "io.debezium.time.IsoTimestamp"),
        },
        ColumnType::Timestamp { .. } => named("string", "io.debezium.time.ZonedTimestamp"),
        ColumnType::Time { .. } => match mode {
            AdaptiveTimeMicroseconds | Microseconds => named("int64", "io.debezium.time.MicroTime"),
            Connect => named("int32", "org.apache.kafka.connect.data.Time"),
            Nanoseconds => named("int64", "io.debezium.time.NanoTime"),
            Isostring => named("string", "io.debezium.time.IsoTime"),
        },
        ColumnType::Text { .. } | ColumnType::Network(_) => of("string"),
        ColumnType::Binary { .. } if options.binary_handling_mode == Binaries::Bytes => of("bytes"),
        ColumnType::Binary { .. } => of("string"),
        ColumnType::Enum { labels, .. } => {
            Type { parameters: allowed(labels), ..named("string", "io.debezium.data.Enum") }
        }
        ColumnType::Set { labels, .. } => {
            Type { parameters: allowed(labels), ..named("string", "io.debezium.data.EnumSet") }
        }
        ColumnType::Json => named("string", "io.debezium.data.Json"),
        ColumnType::Geometry if column.is_point => Type {
            inner: format!(
                ",\"fields\":[{{\"type\":\"double\",\"optional\":false,\"field\":\"x\"}},\
                 {{\"type\":\"double\",\"optional\":false,\"field\":\"y\"}},{}]",
                WKB.replace("\"optional\":false", "\"optional\":true")
            ),
            ..named("struct", "io.debezium.data.geometry.Point")
        },
        ColumnType::Geometry => Type {
            inner: format!(",\"fields\":[{WKB}]"),
            ..named("struct", "io.debezium.data.geometry.Geometry")
        },
        ColumnType::Vector => Type {
            inner: ",\"items\":{\"type\":\"float\",\"optional\":false}".to_owned(),
            ..named("array", "io.debezium.data.FloatVector")
        },
        ColumnType::List(_) => {
            let items = column.element.as_ref().map_or_else(String::new, |element| head(options, element));
            Type { inner: format!(",\"items\":{items}}}"), ..of("array") }
        }
    }
}

fn field(options: &Options, column: &Column) -> String {
    format!("{},\"field\":{}}}", head(options, column), quoted(&column.schema.name))
}

/// The schema of a column without its name and its last bracket.
fn head(options: &Options, column: &Column) -> String {
    let Type { kind, inner, name, parameters } = type_of(options, column);
    let mut text = format!("{{\"type\":\"{kind}\"{inner},\"optional\":{}", column.schema.nullable);
    if !name.is_empty() {
        // Writing into a String cannot fail.
        let _ = write!(text, ",\"name\":\"{name}\",\"version\":1");
    }
    if !parameters.is_empty() {
        let _ = write!(text, ",\"parameters\":{parameters}");
    }
    text
}

fn fields<'a>(options: &Options, columns: impl Iterator<Item = &'a Column>) -> String {
    columns.map(|column| field(options, column)).collect::<Vec<_>>().join(",")
}

fn full_name(options: &Options, table: &Table, end: &str) -> String {
    let valid = |text: &str| -> String {
        text.chars()
            .map(|char| if char.is_ascii_alphanumeric() || "._-".contains(char) { char } else { '_' })
            .collect()
    };
    let prefix = valid(&options.topic_prefix).replace('-', "_");
    quoted(&format!(
        "{prefix}.{}.{}.{end}",
        valid(&table.database).replace('-', "_"),
        valid(&table.name).replace('-', "_")
    ))
}

pub fn key(options: &Options, table: &Table) -> String {
    let fields = fields(options, table.key.iter().map(|index| &table.columns[*index]));
    let name = full_name(options, table, "Key");
    format!("{{\"type\":\"struct\",\"fields\":[{fields}],\"optional\":false,\"name\":{name}}}")
}

const BLOCK: &str =
    "{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":false,\"field\":\"id\"},\
    {\"type\":\"int64\",\"optional\":false,\"field\":\"total_order\"},\
    {\"type\":\"int64\",\"optional\":false,\"field\":\"data_collection_order\"}],\"optional\":true,\
    \"name\":\"event.block\",\"version\":1,\"field\":\"transaction\"}";

/// Type and name of the fields of the source block that all connectors have; `?`: they may be null.
const SOURCE: [(&str, &str); 9] = [
    ("string", "version"),
    ("string", "connector"),
    ("string", "name"),
    ("int64", "ts_ms"),
    ("snapshot", "snapshot"),
    ("string", "db"),
    ("string?", "sequence"),
    ("int64?", "ts_us"),
    ("int64?", "ts_ns"),
];

fn source(info: &SourceInfo) -> String {
    let own = info.fields.iter().map(|field| {
        let kind = match field.kind {
            Kind::Text => "string",
            Kind::OptionalText => "string?",
            Kind::Integer => "int64",
            Kind::OptionalInteger => "int64?",
            Kind::Short => "int32",
        };
        (kind, field.name)
    });
    let fields = SOURCE.into_iter().chain(own).map(|(kind, name)| match kind {
        "snapshot" => {
            "{\"type\":\"string\",\"optional\":true,\"name\":\"io.debezium.data.Enum\",\"version\":1,\
                       \"parameters\":{\"allowed\":\"true,first,first_in_data_collection,\
                       last_in_data_collection,last,false,incremental\"},\"default\":\"false\",\
                       \"field\":\"snapshot\"}"
                .to_owned()
        }
        kind => format!(
            "{{\"type\":\"{}\",\"optional\":{},\"field\":\"{name}\"}}",
            kind.trim_end_matches('?'),
            kind.ends_with('?')
        ),
    });
    format!(
        "{{\"type\":\"struct\",\"fields\":[{}],\"optional\":false,\
         \"name\":\"{}\",\"version\":1,\"field\":\"source\"}}",
        fields.collect::<Vec<_>>().join(","),
        info.schema
    )
}

pub fn value(options: &Options, table: &Table, info: &SourceInfo) -> String {
    let row = fields(options, table.columns.iter());
    let name = full_name(options, table, "Value");
    let image = |field: &str| {
        format!(
            "{{\"type\":\"struct\",\"fields\":[{row}],\"optional\":true,\"name\":{name},\
             \"field\":\"{field}\"}}"
        )
    };
    let time = |name: &str| format!("{{\"type\":\"int64\",\"optional\":true,\"field\":\"{name}\"}}");
    format!(
        "{{\"type\":\"struct\",\"fields\":[{},{},{},{BLOCK},{{\"type\":\"string\",\"optional\":false,\
         \"field\":\"op\"}},{},{},{}],\"optional\":false,\"name\":{},\"version\":2}}",
        image("before"),
        image("after"),
        source(info),
        time("ts_ms"),
        time("ts_us"),
        time("ts_ns"),
        full_name(options, table, "Envelope")
    )
}

pub fn transaction_key() -> String {
    "{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":false,\"field\":\"id\"}],\
     \"optional\":false,\"name\":\"io.debezium.connector.common.TransactionMetadataKey\",\"version\":1}"
        .to_owned()
}

pub fn transaction_value() -> String {
    "{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":false,\"field\":\"status\"},\
     {\"type\":\"string\",\"optional\":false,\"field\":\"id\"},\
     {\"type\":\"int64\",\"optional\":true,\"field\":\"event_count\"},\
     {\"type\":\"array\",\"items\":{\"type\":\"struct\",\"fields\":[{\"type\":\"string\",\"optional\":false,\
     \"field\":\"data_collection\"},{\"type\":\"int64\",\"optional\":false,\"field\":\"event_count\"}],\
     \"optional\":false,\"name\":\"event.collection\",\"version\":1},\"optional\":true,\
     \"field\":\"data_collections\"},{\"type\":\"int64\",\"optional\":false,\"field\":\"ts_ms\"}],\
     \"optional\":false,\"name\":\"io.debezium.connector.common.TransactionMetadataValue\",\"version\":1}"
        .to_owned()
}
