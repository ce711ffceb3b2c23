//! What the framer must know before the first byte.

use crate::transaction_set::TransactionSet;

/// The start of a new log. Transactions are dropped until one begins at or after both bounds.
#[derive(Debug, Clone, Default)]
pub struct Skip<P> {
    pub until_us: Option<u64>,
    pub until: Option<P>,
}

/// The log's last transaction. It is requested again, must come back byte for byte, and is not stored twice.
#[derive(Debug, Clone)]
pub struct Expected<I> {
    /// None: whatever transaction comes first.
    pub id: Option<I>,
    pub length: u64,
    /// See `digest.rs`.
    pub digest: u64,
}

/// `S`: the source's sets of transactions, `P`: places in its own log.
pub struct Options<S: TransactionSet, P> {
    pub offset: u64,
    pub segment_size: u64,
    pub span_size: u64,
    /// The transactions executed before `offset`. None: the source says it (PREVIOUS_GTIDS of MySQL's files).
    pub executed: Option<S>,
    pub source: P,
    /// Written into the first entry of each segment.
    pub server_uuid: String,
    pub skip: Skip<P>,
    pub expected: Option<Expected<S::Id>>,
    pub spool: Spooling,
}

/// A prepared transaction's events: `(start, start + length]` of a file of `relaylog/prepared`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    pub xid: String,
    pub file: String,
    pub start: u64,
    pub length: u64,
}

/// The spool, where the events of prepared (XA) transactions wait for their commit.
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
