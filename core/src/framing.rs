//! What the framer of binlog events has to know before the first byte.

use crate::gtid::{Gtid, GtidSet};
use crate::span::Place;
use crate::xa::Prepared;

/// Transactions before the start of a new log: dropped until one begins at or after both bounds.
#[derive(Debug, Clone, Default)]
pub struct Skip {
    pub until_us: Option<u64>,
    pub until: Option<Place>,
}

/// The log's last transaction, asked for again: it must come back byte for byte, and is not stored twice.
#[derive(Debug, Clone)]
pub struct Expected {
    /// None: the first transaction that comes.
    pub gtid: Option<Gtid>,
    pub length: u64,
    /// See `digest.rs`.
    pub digest: u64,
}

pub struct Options {
    pub offset: u64,
    pub segment_size: u64,
    pub span_size: u64,
    /// What was executed before `offset`; None: the source file's PREVIOUS_GTIDS says it.
    pub executed: Option<GtidSet>,
    pub source: Place,
    /// Put into the first entry of each segment.
    pub server_uuid: String,
    pub skip: Skip,
    pub expected: Option<Expected>,
    pub spool: Spooling,
}

/// Where the events of XA transactions wait for their XA COMMIT.
#[derive(Debug, Clone, Default)]
pub struct Spooling {
    /// What is prepared at `offset`.
    pub prepared: Vec<Prepared>,
    pub folder: String,
    /// Of the next file.
    pub number: u64,
    /// The writer's.
    pub generation: u64,
}
