//! Log events and result rows to Arrow. Decodes, never decides; malformed input is an error with its offset.
#![forbid(unsafe_code)]

pub mod changelog;
pub mod charset;
pub mod column;
pub mod compressed_column;
pub mod cursor;
pub mod decimal;
pub mod described;
pub mod digest;
pub mod digits;
pub mod double;
pub mod error;
pub mod event;
pub mod fold;
pub mod format;
pub mod frame;
pub mod framing;
pub mod group;
pub mod gtid;
pub mod gtid_domain;
pub mod gtid_event;
pub mod inspect;
pub mod json;
pub mod key;
pub mod latest;
pub mod literal;
pub mod log_file;
pub mod mariadb;
pub mod network;
pub mod outline;
pub mod output;
pub mod payload;
pub mod plan;
pub mod pool;
pub mod reduce;
pub mod rescan;
pub mod resultset;
pub mod rows;
pub mod scan;
pub mod schema;
pub mod seen;
pub mod server_error;
pub mod span;
pub mod status;
pub mod table_map;
pub mod table_name;
pub mod temporal;
pub mod text;
pub mod update;
pub mod wire;
pub mod xa;

#[cfg(feature = "python")]
mod python;
