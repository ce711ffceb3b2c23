//! The log of MySQL and MariaDB, and their answers to queries.
//!
//! Forms of values, also those that only MySQL has, are outside, because every reader of images needs them.

pub mod binlog;
pub mod checksum;
pub mod column_form;
pub mod control;
pub mod described;
pub mod event;
pub mod frame;
pub mod group;
pub mod gtid;
pub mod gtid_domain;
pub mod gtid_event;
pub mod log_file;
pub mod log_order;
pub mod mariadb;
pub mod outline;
pub mod payload;
pub mod place;
pub mod query;
pub mod rescan;
pub mod resultset;
pub mod rewritten;
pub mod row_event;
pub mod savepoints;
pub mod scan;
pub mod segment_head;
pub mod server_error;
pub mod source_names;
pub mod span;
pub mod status;
pub mod table_map;
pub mod varint;
pub mod xa;
