//! Log events and result rows to Arrow. Decodes, never decides; malformed input is an error with its offset.
#![forbid(unsafe_code)]

pub mod charset;
pub mod column;
pub mod cursor;
pub mod decimal;
pub mod double;
pub mod error;
pub mod event;
pub mod frame;
pub mod group;
pub mod gtid;
pub mod gtid_event;
pub mod payload;
pub mod resultset;
pub mod schema;
pub mod span;
pub mod temporal;
pub mod text;

#[cfg(feature = "python")]
mod python;
