//! The formats by their names.

use super::binary::{Avro, Protobuf};
use super::binary_debezium::Binary;
use super::format::Format;
use super::schema_ids::{Numbered, SchemaIds};
use super::source_info::SourceInfo;
use super::{canal, canal_entry, cloudevents, debezium, maxwell, plain};
use crate::error::{DecodeError, Result};

/// The format with this name. `options` is a JSON object; each format has its own. `info`: what messages say
/// of the source. Schemas get ids from 1 on.
pub fn by_name(name: &str, options: &str, info: &'static SourceInfo) -> Result<Box<dyn Format>> {
    with_ids(name, options, info, Box::new(Numbered::default()))
}

/// A format by its name, with the schema ids of a registry.
pub fn with_ids(
    name: &str,
    options: &str,
    info: &'static SourceInfo,
    ids: Box<dyn SchemaIds>,
) -> Result<Box<dyn Format>> {
    let wrong = |reason: String| DecodeError::new(format!("options of the format {name}: {reason}"), 0);
    let fail = |error: serde_json::Error| wrong(error.to_string());
    Ok(match name {
        "json" => Box::new(plain::Plain::new(serde_json::from_str(options).map_err(fail)?, info)),
        "maxwell" => Box::new(maxwell::Maxwell::new(serde_json::from_str(options).map_err(fail)?, info)),
        "debezium" => Box::new(debezium::Debezium::new(serde_json::from_str(options).map_err(fail)?, info)),
        "canal" => Box::new(canal::Canal::new(serde_json::from_str(options).map_err(fail)?)),
        "canal-entry" => {
            Box::new(canal_entry::CanalEntry::new(serde_json::from_str(options).map_err(fail)?, info))
        }
        "cloudevents" => {
            Box::new(cloudevents::CloudEvents::new(serde_json::from_str(options).map_err(fail)?, info))
        }
        "avro" => {
            let options = serde_json::from_str(options).map_err(fail)?;
            Box::new(Binary::<Avro>::new(options, info, ids).map_err(wrong)?)
        }
        "protobuf" => {
            let options = serde_json::from_str(options).map_err(fail)?;
            Box::new(Binary::<Protobuf>::new(options, info, ids).map_err(wrong)?)
        }
        other => return Err(DecodeError::new(format!("there is no format `{other}`"), 0)),
    })
}
