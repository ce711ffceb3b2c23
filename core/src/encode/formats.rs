//! The formats by their names.

use super::format::Format;
use super::{canal, cloudevents, debezium, maxwell, plain};
use crate::error::{DecodeError, Result};

/// The format with this name. `options` is a JSON object; each format has its own.
pub fn by_name(name: &str, options: &str) -> Result<Box<dyn Format>> {
    let fail =
        |error: serde_json::Error| DecodeError::new(format!("options of the format {name}: {error}"), 0);
    Ok(match name {
        "json" => Box::new(plain::Plain::new(serde_json::from_str(options).map_err(fail)?)),
        "maxwell" => Box::new(maxwell::Maxwell::new(serde_json::from_str(options).map_err(fail)?)),
        "debezium" => Box::new(debezium::Debezium::new(serde_json::from_str(options).map_err(fail)?)),
        "canal" => Box::new(canal::Canal::new(serde_json::from_str(options).map_err(fail)?)),
        "cloudevents" => {
            Box::new(cloudevents::CloudEvents::new(serde_json::from_str(options).map_err(fail)?))
        }
        other => return Err(DecodeError::new(format!("there is no format `{other}`"), 0)),
    })
}
