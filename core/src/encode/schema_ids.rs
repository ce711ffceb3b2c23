//! Schemas of binary messages, and their ids. Each message begins with the id of its schema (Confluent's wire
//! format), which a registry gives. Who has none gets ids from 1 on, and the schemas beside the messages.

use crate::error::Result;

/// The schema of the keys or of the values of one table, or of the messages about transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSchema {
    /// Database and name. None: of the messages about transactions.
    pub table: Option<(String, String)>,
    pub is_key: bool,
    /// The full name of its record or message.
    pub name: String,
    /// AVRO or PROTOBUF.
    pub kind: &'static str,
    pub text: String,
}

/// Gives schemas their ids.
pub trait SchemaIds: Send + Sync {
    fn id(&mut self, schema: &MessageSchema) -> Result<u32>;
}

/// Ids without a registry: equal schemas have the same id.
#[derive(Default)]
pub struct Numbered(Vec<String>);

impl SchemaIds for Numbered {
    fn id(&mut self, schema: &MessageSchema) -> Result<u32> {
        let known = self.0.iter().position(|text| *text == schema.text);
        let index = known.unwrap_or_else(|| {
            self.0.push(schema.text.clone());
            self.0.len() - 1
        });
        Ok(index as u32 + 1)
    }
}
