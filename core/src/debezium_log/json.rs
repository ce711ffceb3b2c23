//! Objects and texts in JSON, and bytes as base64.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::value::Refused;

/// An object's members in the order of the text.
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push((name.0, value));
                }
                Ok(members)
            }
        }
        from.deserialize_map(Object).map(Members)
    }
}

impl<'a> Members<'a> {
    pub fn of(raw: &'a RawValue) -> Result<Self, Refused> {
        serde_json::from_str(raw.get()).map_err(|_| "an object was expected".into())
    }

    /// The last member of this name that is not null.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().rev().find(|(known, _)| known == name)?.1;
        (found.get() != "null").then_some(found)
    }

    /// A text, or a number or true and false as text.
    pub fn text(&self, name: &str) -> Option<String> {
        let raw = self.get(name)?;
        Some(text(raw).map_or_else(|_| raw.get().to_owned(), Cow::into_owned))
    }
}

pub fn text(raw: &RawValue) -> Result<Cow<'_, str>, Refused> {
    serde_json::from_str::<Text<'_>>(raw.get()).map(|text| text.0).map_err(|_| "a text was expected".into())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes of a base64 text, with or without padding.
pub fn base64(text: &str) -> Result<Vec<u8>, Refused> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err("base64 was expected".into()),
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Ok(bytes)
}

/// Appends base64 in quotation marks.
pub fn put_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            match place <= group.len() {
                true => out.push(BASE64[(word >> (18 - 6 * place) & 63) as usize]),
                false => out.push(b'='),
            }
        }
    }
    out.push(b'"');
}
