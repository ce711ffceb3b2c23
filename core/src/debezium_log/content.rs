//! Key and value of a message: JSON, with its schema or without.

use serde_json::value::RawValue;

use super::json::Members;
use super::value::Refused;

/// The key or the value of a message.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    /// The bytes of the message: JSON, with or without its schema.
    Plain(&'a [u8]),
    /// JSON, and its schema as Connect writes it.
    Described { payload: &'a str, schema: &'a str },
}

impl<'a> Content<'a> {
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Described { payload, .. } => payload.as_bytes(),
        }
    }

    /// Schema and payload of a message that has both; otherwise the message itself.
    pub fn parts(self, what: &str) -> Result<(Option<&'a str>, Option<Members<'a>>), Refused> {
        let raw = json(self.bytes(), what)?;
        if let Content::Described { schema, .. } = self {
            let members = (raw.get() != "null").then(|| Members::of(raw)).transpose()?;
            return Ok((Some(schema), members));
        }
        if raw.get() == "null" {
            return Ok((None, None));
        }
        let members = Members::of(raw)?;
        let names: Vec<&str> = members.0.iter().map(|(name, _)| name.as_ref()).collect();
        if names.len() == 2 && names.contains(&"schema") && names.contains(&"payload") {
            let payload = members.get("payload").map(Members::of).transpose()?;
            return Ok((members.get("schema").map(RawValue::get), payload));
        }
        Ok((None, Some(members)))
    }
}

fn json<'a>(bytes: &'a [u8], what: &str) -> Result<&'a RawValue, Refused> {
    if bytes.first() == Some(&0) {
        return Err(
            format!("its {what} is in Avro, and no schema registry is named (`source.registry`)").into()
        );
    }
    serde_json::from_slice(bytes).map_err(|error| {
        format!("its {what} is not JSON (line {}, column {})", error.line(), error.column()).into()
    })
}
