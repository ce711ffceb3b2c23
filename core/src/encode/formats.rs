//! The formats by their names.

use super::binary::{Avro, Protobuf};
use super::binary_debezium::Binary;
use super::format::Format;
use super::schema_ids::{Numbered, SchemaIds};
use super::{canal, canal_entry, cloudevents, debezium, maxwell, plain};
use crate::error::{DecodeError, Result};

/// The format with this name. `options` is a JSON object; each format has its own. Schemas get ids from 1 on.
pub fn by_name(name: &str, options: &str) -> Result<Box<dyn Format>> {
    with_ids(name, options, Box::new(Numbered::default()))
}

/// A format by its name, with the schema ids of a registry.
pub fn with_ids(name: &str, options: &str, ids: Box<dyn SchemaIds>) -> Result<Box<dyn Format>> {
    let wrong = |reason: String| DecodeError::new(format!("options of the format {name}: {reason}"), 0);
    let fail = |error: serde_json::Error| wrong(error.to_string());
    Ok(match name {
        "json" => Box::new(plain::Plain::new(serde_json::from_str(options).map_err(fail)?)),
        "maxwell" => Box::new(maxwell::Maxwell::new(serde_json::from_str(options).map_err(fail)?)),
        "debezium" => Box::new(debezium::Debezium::new(serde_json::from_str(options).map_err(fail)?)),
        "canal" => Box::new(canal::Canal::new(serde_json::from_str(options).map_err(fail)?)),
        "canal-entry" => Box::new(canal_entry::CanalEntry::new(serde_json::from_str(options).map_err(fail)?)),
        "cloudevents" => {
            Box::new(cloudevents::CloudEvents::new(serde_json::from_str(options).map_err(fail)?))
        }
        "avro" => {
            let options = serde_json::from_str(options).map_err(fail)?;
            Box::new(Binary::<Avro>::new(options, ids).map_err(wrong)?)
        }
        "protobuf" => {
            let options = serde_json::from_str(options).map_err(fail)?;
            Box::new(Binary::<Protobuf>::new(options, ids).map_err(wrong)?)
        }
        other => return Err(DecodeError::new(format!("there is no format `{other}`"), 0)),
    })
}
