//! Messages in Avro with a schema registry, as Connect's converters for Avro write them.
//!
//! A message becomes the JSON that Connect's JSON converter writes for the same value, and its schema becomes
//! Connect's. So an event means the same in both forms, because the same code reads it. Connect's types and
//! names are in the Avro schema (`connect.type`, `connect.name`); the logical types that Connect knows count
//! where they are missing.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::encode::json_text::write_utf8;
use crate::error::DecodeError;

use super::avro_connect::connect_schema;
use super::avro_type::{Form, Node, Types};
use super::json::put_base64;
use super::value::Refused;

/// Values in values.
const DEPTH_MAX: usize = 100;
/// Bytes of JSON for each byte of Avro, at most: names of fields are not in messages of Avro.
const GROWTH_MAX: usize = 500;
const SMALL_BYTES: usize = 1 << 20;
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// The first byte of messages with a schema registry. The next four are the schema's id.
const MAGIC: u8 = 0;

/// The id of the schema of a key or value in Avro. None: it is not in Avro.
pub fn schema_id(bytes: &[u8]) -> Option<u32> {
    let (magic, rest) = bytes.split_first()?;
    (*magic == MAGIC).then_some(u32::from_be_bytes(*rest.first_chunk()?))
}

/// A value as JSON, and Connect's schema of it.
pub struct Translated {
    pub schema: Arc<str>,
    pub payload: String,
}

/// The schemas of a registry that are known, by their ids.
#[derive(Default)]
pub struct Registered(HashMap<u32, Schema>);

impl Registered {
    pub fn has(&self, id: u32) -> bool {
        self.0.contains_key(&id)
    }

    /// Takes the text of a schema in Avro.
    pub fn add(&mut self, id: u32, text: &str) -> Result<(), Refused> {
        self.0.insert(id, Schema::parse(text)?);
        Ok(())
    }

    /// None: the bytes are not in Avro.
    pub fn translated(&self, bytes: Option<&[u8]>) -> Result<Option<Translated>, Refused> {
        let Some((bytes, id)) = bytes.and_then(|bytes| Some((bytes, schema_id(bytes)?))) else {
            return Ok(None);
        };
        let Some(schema) = self.0.get(&id) else {
            return Err(format!("it is in Avro, and the schema {id} is not known (`source.registry`)").into());
        };
        let payload = schema.json(&bytes[5..])?;
        Ok(Some(Translated { schema: schema.connect.clone(), payload }))
    }
}

struct Schema {
    types: Types,
    connect: Arc<str>,
}

impl Schema {
    fn parse(text: &str) -> Result<Self, Refused> {
        let types = Types::parse(text)?;
        let connect = connect_schema(&types)?.into();
        Ok(Self { types, connect })
    }

    fn json(&self, bytes: &[u8]) -> Result<String, Refused> {
        let bytes_max = bytes.len().saturating_mul(GROWTH_MAX).saturating_add(SMALL_BYTES);
        let mut writer = Writer {
            nodes: &self.types.nodes,
            cursor: Cursor::new(bytes, 0),
            out: Vec::with_capacity(bytes.len().min(MESSAGE_BYTES_MAX) * 2),
            bytes_max: bytes_max.min(MESSAGE_BYTES_MAX),
        };
        writer.value(self.types.root, 0)?;
        if !writer.cursor.is_empty() {
            return Err("it has more bytes than its schema in Avro describes".into());
        }
        String::from_utf8(writer.out).map_err(|_| "it has a text that is no UTF-8".into())
    }
}

/// Writes the JSON of one value.
struct Writer<'a> {
    nodes: &'a [Node],
    cursor: Cursor<'a>,
    out: Vec<u8>,
    bytes_max: usize,
}

fn short(_: DecodeError) -> Refused {
    "it ends before its schema in Avro does".into()
}

impl<'a> Writer<'a> {
    fn value(&mut self, at: usize, depth: usize) -> Result<(), Refused> {
        let nodes = self.nodes;
        if depth > DEPTH_MAX || self.out.len() > self.bytes_max {
            return Err("it is nested too deep, or too large".into());
        }
        match &nodes[at].form {
            Form::Null => self.out.extend_from_slice(b"null"),
            Form::Bool => match self.cursor.u8("bool").map_err(short)? {
                0 => self.out.extend_from_slice(b"false"),
                1 => self.out.extend_from_slice(b"true"),
                _ => return Err("a boolean is neither 0 nor 1".into()),
            },
            Form::Int { .. } => {
                let number = self.long()?;
                self.out.extend_from_slice(number.to_string().as_bytes());
            }
            Form::Float => {
                let number = self.cursor.f32("float").map_err(short)?;
                match number.is_finite() {
                    true => self.out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes()),
                    false => self.endless(number.into()),
                }
            }
            Form::Double => {
                let number = self.cursor.f64("double").map_err(short)?;
                match number.is_finite() {
                    true => self.out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes()),
                    false => self.endless(number),
                }
            }
            Form::Bytes => {
                let bytes = self.prefixed()?;
                put_base64(bytes, &mut self.out);
            }
            Form::Fixed(size) => {
                let bytes = self.cursor.take(*size, "fixed").map_err(short)?;
                put_base64(bytes, &mut self.out);
            }
            Form::Text => self.text()?,
            Form::Enum(symbols) => {
                let number = usize::try_from(self.long()?).ok();
                let symbol = number.and_then(|number| symbols.get(number));
                write_utf8(symbol.ok_or("an enum has an unknown number")?.as_bytes(), &mut self.out);
            }
            Form::Array(item) => self.items(b"[]", |writer| writer.value(*item, depth + 1))?,
            Form::Map(item) => self.items(b"{}", |writer| {
                writer.text()?;
                writer.out.push(b':');
                writer.value(*item, depth + 1)
            })?,
            Form::Record(members) => {
                self.out.push(b'{');
                for (number, member) in members.iter().enumerate() {
                    if number > 0 {
                        self.out.push(b',');
                    }
                    write_utf8(member.name.as_bytes(), &mut self.out);
                    self.out.push(b':');
                    self.value(member.node, depth + 1)?;
                }
                self.out.push(b'}');
            }
            Form::Union(branches) => {
                let number = usize::try_from(self.long()?).ok();
                let branch = number.and_then(|number| branches.get(number));
                self.value(*branch.ok_or("a union has an unknown number")?, depth + 1)?;
            }
        }
        Ok(())
    }

    /// The items of an array or a map, in blocks. A block with its size in bytes has a negative count.
    fn items(
        &mut self,
        brackets: &[u8; 2],
        mut item: impl FnMut(&mut Self) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.out.push(brackets[0]);
        let mut first = true;
        loop {
            let count = self.long()?;
            if count == 0 {
                break;
            }
            if count < 0 {
                self.long()?;
            }
            // Items of no bytes have no place in Debezium's messages, and a short message could have many.
            if count.unsigned_abs() > self.cursor.remaining() as u64 {
                return Err(short_list());
            }
            for _ in 0..count.unsigned_abs() {
                if !std::mem::take(&mut first) {
                    self.out.push(b',');
                }
                item(self)?;
            }
        }
        self.out.push(brackets[1]);
        Ok(())
    }

    fn text(&mut self) -> Result<(), Refused> {
        let bytes = self.prefixed()?;
        if simdutf8::basic::from_utf8(bytes).is_err() {
            return Err("it has a text that is no UTF-8".into());
        }
        write_utf8(bytes, &mut self.out);
        Ok(())
    }

    fn prefixed(&mut self) -> Result<&'a [u8], Refused> {
        let length = usize::try_from(self.long()?).map_err(|_| "a length is negative")?;
        self.cursor.take(length, "bytes").map_err(short)
    }

    /// An integer of variable length, whose lowest bit is the sign.
    fn long(&mut self) -> Result<i64, Refused> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.cursor.u8("integer").map_err(short)?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        Err("an integer has more than ten bytes".into())
    }

    /// As Connect writes numbers that JSON does not have.
    fn endless(&mut self, number: f64) {
        let text: &[u8] = match number {
            _ if number.is_nan() => b"\"NaN\"",
            _ if number > 0.0 => b"\"Infinity\"",
            _ => b"\"-Infinity\"",
        };
        self.out.extend_from_slice(text);
    }
}

fn short_list() -> Refused {
    "it has a list that is longer than the message".into()
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value as Json};

    use super::*;

    fn known(text: &str) -> Registered {
        let mut registered = Registered::default();
        registered.add(7, text).unwrap();
        registered
    }

    fn translated(text: &str, body: &[u8]) -> Result<Translated, Refused> {
        let mut bytes = vec![0, 0, 0, 0, 7];
        bytes.extend_from_slice(body);
        known(text).translated(Some(&bytes)).map(Option::unwrap)
    }

    const ROW: &str = r#"{"type": "record", "name": "Value", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": {"type": "int", "connect.type": "int16"}, "default": 3},
        {"name": "price", "default": null, "type": ["null", {"type": "bytes", "logicalType": "decimal",
            "precision": 9, "scale": 2}]},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}],
            "default": null},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "raw", "type": {"type": "bytes", "connect.default": "\u0000\u00ff"}},
        {"name": "again", "type": ["null", "Value"], "default": null}]}"#;

    #[test]
    fn a_value_is_the_json_that_connect_writes() {
        let body = [2, 5, 2, 4, 0x01, 0x00, 0, 4, 2, b'a', 2, b'"', 0, 4, 0, 255, 0];
        let found = translated(ROW, &body).unwrap();
        assert_eq!(
            found.payload,
            r#"{"id":1,"small":-3,"price":"AQA=","at":null,"tags":["a","\""],"raw":"AP8=","again":null}"#
        );
        let schema: Json = serde_json::from_str(&found.schema).unwrap();
        assert_eq!(schema["name"], "shop.Value");
        let field = |at: usize| schema["fields"][at].clone();
        assert_eq!(field(1), json!({"field": "small", "type": "int16", "optional": false, "default": 3}));
        assert_eq!(field(2)["parameters"], json!({"scale": "2", "connect.decimal.precision": "9"}));
        assert_eq!(field(3)["name"], "io.debezium.time.MicroTimestamp");
        assert!(field(3)["optional"].as_bool().unwrap());
        assert_eq!(field(5)["default"], "AP8=");
    }

    #[test]
    fn damaged_messages_are_refused() {
        for body in [&[2][..], &[0x80; 11], &[2, 5, 9], &[2, 5, 0, 0, 0xff, 0xff, 3], &[2, 5, 0, 0, 1, 2]] {
            assert!(translated(ROW, body).is_err(), "{body:?}");
        }
        assert!(known(ROW).translated(Some(&[0, 0, 0, 0, 8, 2])).is_err());
        assert!(known(ROW).translated(Some(b"{}")).unwrap().is_none());
        for text in ["[]x", "{}", r#""unknown""#, r#"{"type": "record", "name": "a"}"#] {
            assert!(Registered::default().add(1, text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_without_an_end_are_texts() {
        let found = translated(r#""double""#, &f64::NEG_INFINITY.to_le_bytes()).unwrap();
        assert_eq!(found.payload, r#""-Infinity""#);
        assert_eq!(translated(r#""float""#, &1.1f32.to_le_bytes()).unwrap().payload, "1.1");
    }
}
