//! Fields and values as Kafka Connect's JSON converter writes them: with their schema, or without.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json::{base64, text, Members};
use super::moments;
use super::placeholder::Placeholder;
use super::value::{decimal_text, Kind, Refused, Value};

/// How the zoned timestamps, and times with nanoseconds, of a message become columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Forms {
    /// Zoned timestamps become TIMESTAMP, not DATETIME in UTC.
    pub instants: bool,
    /// Nanoseconds are cut to microseconds. If not, they stay numbers.
    pub cuts_nanoseconds: bool,
    /// A column that must have a value gets the type's own default when it is added, as in MySQL.
    pub implicit_defaults: bool,
}

/// A column as a message describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: String,
    /// None: the message has no schema, and its value is null.
    pub kind: Option<Kind>,
    pub reading: Reading,
    pub optional: bool,
    /// The default, as JSON.
    pub default: Option<String>,
}

/// How a field's value is written in messages.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    Bool,
    Int,
    Float,
    Text,
    Base64,
    Days,
    /// A time or moment in units of so many nanoseconds.
    Time {
        unit_ns: i64,
    },
    Moment {
        unit_ns: i64,
    },
    ZonedMoment,
    Decimal {
        scale: i32,
    },
    VariableScaleDecimal,
    /// A span in units of so many nanoseconds.
    Span {
        unit_ns: i64,
    },
    /// Little-endian bytes.
    Bits,
    Geometry,
    /// Any JSON, which is kept as text.
    Json,
    /// An array of such elements.
    List(Box<Reading>),
    /// A cell of Cassandra: an object that has the value as `value`.
    Cell(Box<Reading>),
}

/// The fields of a struct's schema.
pub fn fields(schema: &serde_json::Value, forms: Forms) -> Result<Vec<Field>, Refused> {
    let listed = schema.get("fields").and_then(|fields| fields.as_array());
    let listed = listed.ok_or_else(|| Refused::from("its schema has no fields"))?;
    listed
        .iter()
        .map(|field| {
            let name = field.get("field").and_then(|name| name.as_str()).unwrap_or_default();
            if name.is_empty() {
                return Err("a field of its schema has no name".into());
            }
            read_field(name, field, forms)
        })
        .collect()
}

fn read_field(name: &str, schema: &serde_json::Value, forms: Forms) -> Result<Field, Refused> {
    let word = |key: &str| schema.get(key).and_then(|value| value.as_str()).unwrap_or_default();
    let parameter = |key: &str| -> Option<i64> { schema.get("parameters")?.get(key)?.as_str()?.parse().ok() };
    let (kind, reading) = by_name(word("name"), parameter, forms)
        .or_else(|| by_type(word("type"), schema, forms))
        .ok_or_else(|| Refused::from(format!("field `{name}` has the unknown type `{}`", word("type"))))?;
    let optional = schema.get("optional").and_then(|value| value.as_bool()).unwrap_or(false);
    let mut default = schema.get("default").filter(|value| !value.is_null()).map(ToString::to_string);
    if default.is_none() && !optional && forms.implicit_defaults {
        default = implicit_default(&kind, schema);
    }
    Ok(Field { name: name.to_owned(), kind: Some(kind), reading, optional, default })
}

/// What MySQL gives existing rows when a column NOT NULL without a default is added; as JSON.
fn implicit_default(kind: &Kind, schema: &serde_json::Value) -> Option<String> {
    let named = schema.get("name").and_then(|name| name.as_str());
    match (kind, named) {
        (Kind::Text, Some("io.debezium.data.Enum")) => {
            let allowed = schema.get("parameters")?.get("allowed")?.as_str()?;
            Some(serde_json::Value::from(allowed.split(',').next()?).to_string())
        }
        (Kind::Text, None | Some("io.debezium.data.EnumSet")) => Some("\"\"".to_owned()),
        (Kind::Int { .. } | Kind::Float | Kind::Double | Kind::Decimal { .. }, _) => Some("0".to_owned()),
        (Kind::Bool, _) => Some("false".to_owned()),
        _ => None,
    }
}

/// The type by the name that gives a Connect type a meaning.
pub fn by_name(name: &str, parameter: impl Fn(&str) -> Option<i64>, forms: Forms) -> Option<(Kind, Reading)> {
    const MS: i64 = 1_000_000;
    let nanoseconds = |kind, reading| match forms.cuts_nanoseconds {
        true => (kind, reading),
        false => (Kind::Int { width: 8 }, Reading::Int),
    };
    Some(match name {
        "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date" => (Kind::Date, Reading::Days),
        "io.debezium.time.Time" | "org.apache.kafka.connect.data.Time" => {
            (Kind::Time { fsp: 3 }, Reading::Time { unit_ns: MS })
        }
        "io.debezium.time.MicroTime" => (Kind::Time { fsp: 6 }, Reading::Time { unit_ns: 1000 }),
        "io.debezium.time.NanoTime" => nanoseconds(Kind::Time { fsp: 6 }, Reading::Time { unit_ns: 1 }),
        "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp" => {
            (Kind::DateTime { fsp: 3 }, Reading::Moment { unit_ns: MS })
        }
        "io.debezium.time.MicroTimestamp" => (Kind::DateTime { fsp: 6 }, Reading::Moment { unit_ns: 1000 }),
        "io.debezium.time.NanoTimestamp" => {
            nanoseconds(Kind::DateTime { fsp: 6 }, Reading::Moment { unit_ns: 1 })
        }
        "io.debezium.time.ZonedTimestamp" => match forms.instants {
            true => (Kind::Timestamp { fsp: 6 }, Reading::ZonedMoment),
            false => (Kind::DateTime { fsp: 6 }, Reading::ZonedMoment),
        },
        "org.apache.kafka.connect.data.Decimal" => {
            let scale = parameter("scale")?;
            let precision = parameter("connect.decimal.precision").unwrap_or(38);
            let reading = Reading::Decimal { scale: i32::try_from(scale).ok()? };
            match (u8::try_from(precision), u8::try_from(scale)) {
                (Ok(precision @ 1..=65), Ok(scale @ 0..=30)) if scale <= precision => {
                    (Kind::Decimal { precision, scale }, reading)
                }
                _ => (Kind::Numeric, reading),
            }
        }
        "io.debezium.data.Json" => (Kind::Json, Reading::Text),
        "io.debezium.data.VariableScaleDecimal" => (Kind::Numeric, Reading::VariableScaleDecimal),
        "io.debezium.time.Interval" => (Kind::Interval, Reading::Text),
        "io.debezium.time.MicroDuration" => (Kind::Interval, Reading::Span { unit_ns: 1000 }),
        "io.debezium.time.NanoDuration" => (Kind::Interval, Reading::Span { unit_ns: 1 }),
        "io.debezium.data.Bits" => match parameter("length").and_then(|bits| u8::try_from(bits).ok()) {
            Some(bits @ 1..=64) => (Kind::Bit { bits }, Reading::Bits),
            _ => (Kind::Binary, Reading::Base64),
        },
        "io.debezium.data.geometry.Geometry"
        | "io.debezium.data.geometry.Point"
        | "io.debezium.data.geometry.Geography" => (Kind::Geometry, Reading::Geometry),
        _ => return None,
    })
}

fn by_type(kind: &str, schema: &serde_json::Value, forms: Forms) -> Option<(Kind, Reading)> {
    Some(match kind {
        "boolean" => (Kind::Bool, Reading::Bool),
        "int8" => (Kind::Int { width: 1 }, Reading::Int),
        "int16" => (Kind::Int { width: 2 }, Reading::Int),
        "int32" => (Kind::Int { width: 4 }, Reading::Int),
        "int64" => (Kind::Int { width: 8 }, Reading::Int),
        "float" | "float32" => (Kind::Float, Reading::Float),
        "double" | "float64" => (Kind::Double, Reading::Float),
        "string" => (Kind::Text, Reading::Text),
        "bytes" => (Kind::Binary, Reading::Base64),
        "array" => list(schema, forms).unwrap_or((Kind::Json, Reading::Json)),
        "map" => (Kind::Json, Reading::Json),
        "struct" => match cell(schema, forms) {
            Some((kind, reading)) => (kind, Reading::Cell(Box::new(reading))),
            None => (Kind::Json, Reading::Json),
        },
        _ => return None,
    })
}

/// The type of an array whose elements are single values.
fn list(schema: &serde_json::Value, forms: Forms) -> Option<(Kind, Reading)> {
    let element = read_field("element", schema.get("items")?, forms).ok()?;
    match (element.kind?, element.reading) {
        (Kind::List(_), _) | (_, Reading::Json | Reading::Cell(_)) => None,
        (kind, reading) => Some((Kind::List(Box::new(kind)), Reading::List(Box::new(reading)))),
    }
}

/// The type of a cell as Debezium's connector for Cassandra writes it.
fn cell(schema: &serde_json::Value, forms: Forms) -> Option<(Kind, Reading)> {
    let listed = schema.get("fields")?.as_array()?;
    let named =
        |name: &str| listed.iter().find(|field| field.get("field").is_some_and(|known| known == name));
    if listed.len() != 3 || named("deletion_ts").is_none() || named("set").is_none() {
        return None;
    }
    let field = read_field("value", named("value")?, forms).ok()?;
    Some((field.kind?, field.reading))
}

/// The field of a value that came without a schema.
pub fn inferred(name: &str, raw: &RawValue) -> Field {
    let (kind, reading) = match raw.get().as_bytes().first() {
        Some(b'"') => (Some(Kind::Text), Reading::Text),
        Some(b't' | b'f') => (Some(Kind::Bool), Reading::Bool),
        Some(b'{' | b'[') => (Some(Kind::Json), Reading::Json),
        Some(b'n') | None => (None, Reading::Json),
        Some(_) if raw.get().bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => {
            (Some(Kind::Double), Reading::Float)
        }
        Some(_) => (Some(Kind::Int { width: 8 }), Reading::Int),
    };
    Field { name: name.to_owned(), kind, reading, optional: true, default: None }
}

/// The value of a field. `unavailable`: what stands for a value that is not in the message.
pub fn value<'a>(
    raw: &'a RawValue,
    reading: &Reading,
    unavailable: Option<&Placeholder>,
) -> Result<Value<'a>, Refused> {
    let json = raw.get();
    if json == "null" {
        return Ok(Value::Null);
    }
    if unavailable.is_some_and(|placeholder| placeholder.is(json)) {
        return Ok(Value::Absent);
    }
    Ok(match reading {
        Reading::Bool => match json {
            "true" => Value::Int(1),
            "false" => Value::Int(0),
            _ => return Err("true or false was expected".into()),
        },
        Reading::Int => Value::Int(int(json)?),
        Reading::Float => match json {
            "\"NaN\"" | "\"Infinity\"" | "\"-Infinity\"" => {
                Value::Float(json.trim_matches('"').parse().unwrap_or(f64::NAN))
            }
            _ => Value::Float(json.parse().map_err(|_| Refused::from("a number was expected"))?),
        },
        Reading::Text => Value::Text(text(raw)?),
        Reading::Base64 => Value::Bytes(Cow::Owned(base64(&text(raw)?)?)),
        Reading::Days => Value::Date(long(json)?),
        Reading::Time { unit_ns } => Value::Time(moments::micros(long(json)?.into(), *unit_ns) as i64),
        Reading::Moment { unit_ns } => Value::Moment(moments::micros(long(json)?.into(), *unit_ns)),
        Reading::ZonedMoment => Value::Moment(moments::zoned(&text(raw)?)?),
        Reading::Decimal { scale } => Value::Decimal(match json.starts_with('"') {
            true => Cow::Owned(decimal_text(&base64(&text(raw)?)?, *scale)?),
            false => Cow::Borrowed(json),
        }),
        Reading::VariableScaleDecimal => {
            let members = Members::of(raw)?;
            let scale = members.get("scale").ok_or("the decimal number has no scale")?;
            let bytes = members.get("value").ok_or("the decimal number has no value")?;
            let scale = i32::try_from(int(scale.get())?).map_err(|_| "the scale is too large")?;
            Value::Decimal(Cow::Owned(decimal_text(&base64(&text(bytes)?)?, scale)?))
        }
        Reading::Span { unit_ns } => Value::Text(Cow::Owned(moments::span(long(json)?, *unit_ns))),
        Reading::Bits => bits(&base64(&text(raw)?)?)?,
        Reading::Geometry => {
            let members = Members::of(raw)?;
            let wkb = members.get("wkb").ok_or("the geometry has no `wkb`")?;
            let srid = members.get("srid").map_or(Ok(0), |raw| int(raw.get()))?;
            let srid = u32::try_from(srid).map_err(|_| "the geometry's `srid` is negative")?;
            Value::Geometry { srid, wkb: base64(&text(wkb)?)? }
        }
        Reading::Json => Value::Text(Cow::Borrowed(json)),
        Reading::List(element) => {
            let items = serde_json::from_str::<Vec<&RawValue>>(json).map_err(|_| "an array was expected")?;
            // An array of several dimensions has the type of its elements.
            if items.iter().any(|item| item.get().starts_with('[')) {
                return Ok(Value::Document(Cow::Borrowed(json)));
            }
            let values = items.into_iter().map(|item| value(item, element, None));
            Value::List(values.collect::<Result<_, _>>()?)
        }
        Reading::Cell(inner) => match Members::of(raw)?.get("value") {
            None => Value::Null,
            Some(raw) => value(raw, inner, unavailable)?,
        },
    })
}

pub fn bits(bytes: &[u8]) -> Result<Value<'static>, Refused> {
    if bytes.len() > 8 && bytes[8..].iter().any(|byte| *byte != 0) {
        return Err("it has more than 64 bits".into());
    }
    Ok(Value::Bits(bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))))
}

fn int(json: &str) -> Result<i128, Refused> {
    json.parse().map_err(|_| "an integer was expected".into())
}

fn long(json: &str) -> Result<i64, Refused> {
    json.parse().map_err(|_| "an integer was expected".into())
}
