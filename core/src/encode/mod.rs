//! Rows of the log as messages of other tools' formats, one file a format.
//!
//! A message is written straight from the row image: nothing is allocated for a value, and what all rows of
//! an event share is written once. Formats get whole transactions in log order (`log_order`).

pub mod arrow_image;
pub mod avro_schema;
pub mod binary;
pub mod binary_debezium;
pub mod binary_field;
pub mod binary_form;
pub mod binary_parts;
pub mod canal;
pub mod canal_entry;
pub mod canal_value;
pub mod cloudevents;
pub mod columns;
pub mod debezium;
pub mod debezium_change;
pub mod debezium_form;
pub mod debezium_options;
pub mod debezium_schema;
pub mod encoder;
pub mod format;
pub mod formats;
pub mod geometry;
pub mod image;
pub mod json_form;
pub mod json_numbers;
pub mod json_text;
pub mod made;
pub mod maxwell;
pub mod messages;
pub mod pieces;
pub mod plain;
pub mod protobuf_schema;
pub mod records;
pub mod route;
pub mod routing;
pub mod row_encoder;
pub mod ruled;
pub mod schema_ids;
pub mod source_info;
pub mod tables;
pub mod transaction_order;
pub mod unscaled;
