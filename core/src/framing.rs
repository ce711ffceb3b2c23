//! What the framer must know before the first byte.

use crate::mysql::gtid::{Gtid, GtidSet};
use crate::mysql::span::Place;
use crate::mysql::xa::Prepared;

/// The start of a new log. Transactions are dropped until one begins at or after both bounds.
#[derive(Debug, Clone, Default)]
pub struct Skip {
    pub until_us: Option<u64>,
    pub until: Option<Place>,
}

/// The log's last transaction. It is requested again, must come back byte for byte, and is not stored twice.
#[derive(Debug, Clone)]
pub struct Expected {
    /// None: whatever transaction comes first.
    pub gtid: Option<Gtid>,
    pub length: u64,
    /// See `digest.rs`.
    pub digest: u64,
}

pub struct Options {
    pub offset: u64,
    pub segment_size: u64,
    pub span_size: u64,
    /// The transactions executed before `offset`. None: the source file's PREVIOUS_GTIDS has them.
    pub executed: Option<GtidSet>,
    pub source: Place,
    /// Written into the first entry of each segment.
    pub server_uuid: String,
    pub skip: Skip,
    pub expected: Option<Expected>,
    pub spool: Spooling,
}

/// The spool, where the events of XA transactions wait for their XA COMMIT.
#[derive(Debug, Clone, Default)]
pub struct Spooling {
    /// The transactions that are prepared at `offset`.
    pub prepared: Vec<Prepared>,
    pub folder: String,
    /// The number of the next file.
    pub number: u64,
    /// The writer's generation.
    pub generation: u64,
}
