//! One message of a topic, as an event of Debezium.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::connect::{self, Field, Forms};
use super::content::Content;
use super::json::{text, Members};
use super::order::{self, Position, SourceBlock};
use super::placeholder::Placeholder;
use super::value::{check_name, put, Kind, Refused, Value};

/// A column of a message, and what rows have that were written before it: a literal, and its row image.
pub type Described = (Field, Option<(String, Vec<u8>)>);
pub type Fields = Arc<Vec<Described>>;
pub type Row<'a> = Vec<Value<'a>>;

/// Schemas that are kept. Topics have few of them, and a hostile one may have many.
const SCHEMAS_MAX: usize = 1000;
const MESSAGE_BYTES_MAX: usize = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zoned {
    /// A moment.
    Instant,
    /// Date and time in UTC.
    Utc,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub zoned: Zoned,
    pub cuts_nanoseconds: bool,
    /// What stands for values that did not change and are not in the message.
    pub unavailable: Placeholder,
    /// A pattern for the names of tables: `{database}.{table}` and the like.
    pub table: Option<String>,
    /// Messages that cannot be read are skipped.
    pub skips: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Write,
    Update,
    Delete,
    Truncate,
}

/// A change of one row.
pub struct Change<'a> {
    pub operation: Operation,
    pub database: String,
    pub table: String,
    /// Connector, its name and the database.
    pub origin: String,
    pub connector: String,
    pub position: Position,
    pub commit_ms: i64,
    /// Whether it is part of a snapshot: its rows are not told apart by positions.
    pub snapshot: bool,
    pub fields: Fields,
    pub key: Vec<String>,
    /// Values of the fields. None: not in the message.
    pub before: Option<Row<'a>>,
    pub after: Option<Row<'a>>,
    pub key_values: Row<'a>,
    pub hash: u64,
    pub key_hash: u32,
    /// Whether the message has a schema, which has all columns.
    pub described: bool,
}

pub enum Event<'a> {
    Change(Box<Change<'a>>),
    /// There is no row with this key.
    Tombstone,
    /// A heartbeat, the border of a transaction, a statement, or a message in the log.
    Nothing,
}

/// Schemas by their texts.
#[derive(Default)]
pub struct Schemas {
    values: Known<Shape>,
    keys: Known<Arc<Vec<Field>>>,
}

/// What was made of the texts of schemas. Most messages have the same one as the message before.
struct Known<T> {
    last: Option<(Forms, String, T)>,
    others: HashMap<(Forms, String), T>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { last: None, others: HashMap::new() }
    }
}

impl<T: Clone> Known<T> {
    fn get(
        &mut self,
        forms: Forms,
        text: &str,
        make: impl FnOnce() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        if let Some((known, same, found)) = &self.last {
            if *known == forms && same == text {
                return Ok(found.clone());
            }
        }
        let place = (forms, text.to_owned());
        let found = match self.others.get(&place) {
            Some(found) => found.clone(),
            None => {
                let made = make()?;
                if self.others.len() >= SCHEMAS_MAX {
                    self.others.clear();
                }
                self.others.insert(place.clone(), made.clone());
                made
            }
        };
        self.last = Some((place.0, place.1, found.clone()));
        Ok(found)
    }
}

/// What a schema says about rows.
#[derive(Clone)]
enum Shape {
    Columns(Fields),
    /// The row is one JSON document (MongoDB).
    Document,
}

struct Block<'a>(Members<'a>);

impl SourceBlock for Block<'_> {
    fn get(&self, name: &str) -> Option<String> {
        self.0.text(name)
    }
}

pub fn read<'a>(
    key: Option<Content<'a>>,
    value: Option<Content<'a>>,
    topic: &str,
    options: &Options,
    schemas: &mut Schemas,
) -> Result<Event<'a>, Refused> {
    let Some(value) = value.filter(|value| !value.bytes().is_empty()) else { return Ok(Event::Tombstone) };
    if value.bytes().len() > MESSAGE_BYTES_MAX {
        return Err("the message has more than 1 GiB".into());
    }
    let (schema, payload) = value.parts("value")?;
    let Some(members) = payload else { return Ok(Event::Tombstone) };
    let Some(op) = members.text("op") else { return without_operation(&members) };
    let source = members.get("source").ok_or("it has no `source`: this is no event of Debezium")?;
    let block = Block(Members::of(source)?);
    let operation = match op.as_str() {
        "r" | "c" | "i" => Operation::Write,
        "u" => Operation::Update,
        "d" => Operation::Delete,
        "t" => Operation::Truncate,
        "m" => return Ok(Event::Nothing),
        _ => return Err(format!("its `op` {op:?} is not known").into()),
    };
    let connector = block.get("connector").unwrap_or_default();
    let forms = forms(options, &connector);
    let (before, after) = (members.get("before"), members.get("after"));
    let (database, table) = names(&block, topic, options)?;
    let mut change = Change {
        operation,
        database,
        table,
        origin: format!(
            "{connector}/{}/{}",
            block.get("name").unwrap_or_default(),
            block.get("db").unwrap_or_default()
        ),
        position: order::position(&connector, &block),
        commit_ms: block.get("ts_ms").and_then(|text| text.parse().ok()).unwrap_or(0),
        snapshot: op == "r"
            || block.get("snapshot").is_some_and(|text| !matches!(text.as_str(), "false" | "")),
        connector,
        fields: Fields::default(),
        key: Vec::new(),
        before: None,
        after: None,
        key_values: Vec::new(),
        hash: 0,
        key_hash: hash_of_key(key),
        described: schema.is_some(),
    };
    change.hash = hashed(&op, &change, key.map(Content::bytes), before, after);
    if operation == Operation::Truncate {
        return Ok(Event::Change(Box::new(change)));
    }
    let key = read_key(key, forms, schemas)?;
    change.key = key.iter().map(|(field, _, _)| field.name.clone()).collect();
    let shape = match schema {
        Some(schema) => schemas.values.get(forms, schema, || shape_of_schema(schema, forms))?,
        None => shape_of_values(before, after, &change.connector),
    };
    let unavailable =
        matches!(change.connector.as_str(), "postgresql" | "oracle").then_some(&options.unavailable);
    fill(&mut change, &shape, key, before, after, unavailable)?;
    Ok(Event::Change(Box::new(change)))
}

/// A hash of a message's key. It tells rows of one topic apart.
pub fn hash_of_key(key: Option<Content<'_>>) -> u32 {
    crc32fast::hash(key.map(Content::bytes).unwrap_or_default())
}

pub fn forms(options: &Options, connector: &str) -> Forms {
    let mysql = matches!(connector, "mysql" | "mariadb");
    Forms {
        instants: options.zoned == Zoned::Instant,
        cuts_nanoseconds: options.cuts_nanoseconds,
        implicit_defaults: mysql,
    }
}

/// Heartbeats, borders of transactions and schema changes are no changes of rows.
fn without_operation<'a>(members: &Members<'a>) -> Result<Event<'a>, Refused> {
    let has = |name: &str| members.0.iter().any(|(known, _)| known == name);
    let border = has("status") && has("id") && has("event_count");
    let statement = has("ddl") && has("source");
    let heartbeat = members.0.len() == 1 && has("ts_ms");
    if border || statement || heartbeat {
        return Ok(Event::Nothing);
    }
    Err("it has no `op`: this is no event of Debezium, or only its new row (transform ExtractNewRecordState)"
        .into())
}

/// A hash of an event: equal for equal events, and in every version, because it is stored. It only has to
/// tell events at one position apart, so checksums do.
fn hashed(
    op: &str,
    change: &Change<'_>,
    key: Option<&[u8]>,
    before: Option<&RawValue>,
    after: Option<&RawValue>,
) -> u64 {
    let mut left = crc32fast::Hasher::new();
    left.update(op.as_bytes());
    left.update(change.database.as_bytes());
    left.update(change.table.as_bytes());
    left.update(key.unwrap_or_default());
    left.update(before.map_or(&[], raw_bytes));
    let right = crc32fast::hash(after.map_or(&[], raw_bytes));
    u64::from(left.finalize()) << 32 | u64::from(right)
}

fn raw_bytes(raw: &RawValue) -> &[u8] {
    raw.get().as_bytes()
}

/// Database and name of the table.
fn names(block: &Block<'_>, topic: &str, options: &Options) -> Result<(String, String), Refused> {
    let field = |name: &str| block.get(name).filter(|text| !text.is_empty());
    let schema = field("schema").or_else(|| field("keyspace")).or_else(|| field("keyspace_name"));
    let table = field("table").or_else(|| field("collection")).or_else(|| field("table_name"));
    let table = table.ok_or("its `source` names no table")?;
    let found = match &options.table {
        Some(pattern) => {
            let mut name = pattern.clone();
            let parts = [
                ("{name}", field("name")),
                ("{database}", field("db")),
                ("{schema}", schema),
                ("{table}", Some(table)),
                ("{topic}", Some(topic.to_owned())),
            ];
            let (pattern_database, pattern_table) = name.split_once('.').unwrap_or(("", &name));
            let filled = |pattern: &str| {
                parts.iter().fold(pattern.to_owned(), |text, (part, value)| {
                    text.replace(part, value.as_deref().unwrap_or_default())
                })
            };
            let both = (filled(pattern_database), filled(pattern_table));
            name.clear();
            both
        }
        None => (schema.or_else(|| field("db")).ok_or("its `source` names no database")?, table),
    };
    check_name(&found.0)?;
    check_name(&found.1)?;
    Ok(found)
}

/// A field of a key, what rows before it have, and its value.
pub type KeyPart<'a> = (Field, Option<(String, Vec<u8>)>, Value<'a>);

pub fn read_key<'a>(
    key: Option<Content<'a>>,
    forms: Forms,
    schemas: &mut Schemas,
) -> Result<Vec<KeyPart<'a>>, Refused> {
    let Some(key) = key.filter(|key| !key.bytes().is_empty()) else { return Ok(Vec::new()) };
    let (schema, payload) = key.parts("key")?;
    let Some(members) = payload else { return Ok(Vec::new()) };
    let described = match schema {
        Some(schema) => Some(schemas.keys.get(forms, schema, || key_of_schema(schema, forms))?),
        None => None,
    };
    let mut parts = Vec::with_capacity(members.0.len());
    for (name, raw) in &members.0 {
        let field = match &described {
            Some(fields) => fields
                .iter()
                .find(|field| field.name == *name)
                .cloned()
                .ok_or("a field of its key is not in the key's schema")?,
            None => connect::inferred(name, raw),
        };
        let value = connect::value(raw, &field.reading, None).map_err(|why| in_column(name, &why))?;
        parts.push((field, None, value));
    }
    Ok(parts)
}

fn shape_of_values(before: Option<&RawValue>, after: Option<&RawValue>, connector: &str) -> Shape {
    let is_text = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get().starts_with('"'));
    if connector == "mongodb" || is_text(before) || is_text(after) {
        return Shape::Document;
    }
    let mut fields: Vec<Described> = Vec::new();
    for row in [after, before].into_iter().flatten() {
        for (name, raw) in Members::of(row).map(|members| members.0).unwrap_or_default() {
            let field = connect::inferred(&name, raw);
            match fields.iter_mut().find(|(known, _)| known.name == name) {
                Some((known, _)) if known.kind.is_none() => *known = field,
                Some(_) => {}
                None => fields.push((field, None)),
            }
        }
    }
    Shape::Columns(Arc::new(fields))
}

fn shape_of_schema(text: &str, forms: Forms) -> Result<Shape, Refused> {
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|_| "its schema is no JSON")?;
    let listed = parsed.get("fields").and_then(|fields| fields.as_array());
    let named =
        |name: &str| listed?.iter().find(|field| field.get("field").is_some_and(|known| known == name));
    let row = named("after").or_else(|| named("before")).ok_or("its schema has no field `after`")?;
    Ok(match row.get("type").and_then(|kind| kind.as_str()) {
        Some("string") => Shape::Document,
        _ => Shape::Columns(Arc::new(connect::fields(row, forms)?.into_iter().map(with_default).collect())),
    })
}

fn key_of_schema(text: &str, forms: Forms) -> Result<Arc<Vec<Field>>, Refused> {
    let parsed = serde_json::from_str(text).map_err(|_| "the schema of its key is no JSON")?;
    connect::fields(&parsed, forms).map(Arc::new)
}

/// The default as JSON and as an image, where both are possible.
fn with_default(field: Field) -> Described {
    let found = || {
        let json = field.default.as_deref()?;
        let raw: &RawValue = serde_json::from_str(json).ok()?;
        let value = connect::value(raw, &field.reading, None).ok()?;
        let literal = match &value {
            Value::Int(number) if field.kind == Some(Kind::Bool) => (*number != 0).to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) if number.is_finite() => number.to_string(),
            Value::Text(text) | Value::Decimal(text) => serde_json::Value::from(text.as_ref()).to_string(),
            _ => return None,
        };
        let mut image = Vec::new();
        put(&value, field.kind.as_ref()?, &mut image).ok()?;
        Some((literal, image))
    };
    let default = found();
    (field, default)
}

/// Takes fields and values into the change.
fn fill<'a>(
    change: &mut Change<'a>,
    shape: &Shape,
    key: Vec<KeyPart<'a>>,
    before: Option<&'a RawValue>,
    after: Option<&'a RawValue>,
    unavailable: Option<&Placeholder>,
) -> Result<(), Refused> {
    match shape {
        Shape::Columns(fields)
            if key.iter().all(|(part, _, _)| fields.iter().any(|(field, _)| field.name == part.name)) =>
        {
            change.fields = fields.clone();
        }
        Shape::Columns(fields) => {
            // A key that is made of other fields (message.key.columns of a transform) is part of the row.
            let mut all: Vec<Described> = key
                .iter()
                .filter(|(part, _, _)| !fields.iter().any(|(field, _)| field.name == part.name))
                .map(|(field, default, _)| (field.clone(), default.clone()))
                .collect();
            all.extend(fields.iter().cloned());
            change.fields = Arc::new(all);
        }
        Shape::Document => {
            let mut all: Vec<Described> =
                key.iter().map(|(field, default, _)| (field.clone(), default.clone())).collect();
            let document = Field {
                name: "document".to_owned(),
                kind: Some(Kind::Json),
                reading: connect::Reading::Text,
                optional: true,
                default: None,
            };
            all.push((document, None));
            change.fields = Arc::new(all);
        }
    }
    // Cassandra's updates only have the cells that were written.
    let is_partial = change.connector == "cassandra" && change.operation == Operation::Update;
    let row = |raw: Option<&'a RawValue>| -> Result<Option<Row<'a>>, Refused> {
        let Some(raw) = raw else { return Ok(None) };
        if matches!(shape, Shape::Document) {
            let mut row: Row<'a> = key.iter().map(|(_, _, value)| value.clone()).collect();
            row.push(Value::Text(match raw.get().starts_with('"') {
                true => text(raw)?,
                false => Cow::Borrowed(raw.get()),
            }));
            return Ok(Some(row));
        }
        let mut row = columns(&Members::of(raw)?, &change.fields, unavailable)?;
        if is_partial {
            leave_unwritten(&mut row, &change.fields, &Members::of(raw)?);
        }
        Ok(Some(row))
    };
    change.before = row(before)?;
    change.after = row(after)?;
    for (part, _, value) in &key {
        let place = change.fields.iter().position(|(field, _)| field.name == part.name);
        let Some(place) = place else { continue };
        // An update that changes the key is two messages, so the key is that of both rows.
        for row in [&mut change.before, &mut change.after].into_iter().flatten() {
            if matches!(row[place], Value::Null | Value::Absent) {
                row[place] = value.clone();
            }
        }
    }
    change.key_values = key.into_iter().map(|(_, _, value)| value).collect();
    Ok(())
}

/// Fields that Debezium's connector for Cassandra adds to rows.
const RANGE_FIELDS: [&str; 2] = ["_range_start", "_range_end"];

/// Marks the values that an update of Cassandra did not write. A cell that was set to null is an object.
fn leave_unwritten(row: &mut Row<'_>, fields: &Fields, cells: &Members<'_>) {
    for (value, (field, _)) in row.iter_mut().zip(fields.iter()) {
        if cells.get(&field.name).is_none() && !RANGE_FIELDS.contains(&field.name.as_str()) {
            *value = Value::Absent;
        }
    }
}

fn columns<'a>(
    members: &Members<'a>,
    fields: &Fields,
    unavailable: Option<&Placeholder>,
) -> Result<Row<'a>, Refused> {
    let mut row = vec![Value::Null; fields.len()];
    for (at, (name, raw)) in members.0.iter().enumerate() {
        let same = fields.get(at).is_some_and(|(field, _)| field.name == *name);
        let place = match same {
            true => at,
            false => match fields.iter().position(|(field, _)| field.name == *name) {
                Some(place) => place,
                None => return Err(format!("its column `{name}` is not in its schema").into()),
            },
        };
        let reading = &fields[place].0.reading;
        row[place] = connect::value(raw, reading, unavailable).map_err(|why| in_column(name, &why))?;
    }
    Ok(row)
}

pub fn in_column(name: &str, why: &str) -> Refused {
    format!("column `{name}`: {why}").into()
}
