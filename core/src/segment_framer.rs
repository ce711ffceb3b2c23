//! Turns a source's bytes into the segments and the index of its relay log.

use crate::error::Result;

/// Cuts what a source sends into events, and finds where transactions end. It decides nothing about files and
/// clocks, and offsets are counted here only.
pub trait SegmentFramer {
    /// Takes bytes from the source. Returns what must be written before the next call. While `more` is true,
    /// call it again without bytes.
    fn feed(&mut self, data: &[u8]) -> Result<Vec<Piece>>;

    /// Whether the framer still has bytes of its input that it has not returned.
    fn more(&self) -> bool;

    /// Index entries (JSON) for everything that `feed` has returned since the last cut.
    fn cut(&mut self) -> Vec<String>;

    /// Lets the next transaction begin a new segment.
    fn roll(&mut self);

    /// Whether a segment is open, to which bytes from `feed` can be appended.
    fn has_segment(&self) -> bool;

    /// The end of what `feed` has returned.
    fn offset(&self) -> u64;

    /// The greatest offset up to now at which a transaction ends.
    fn committed(&self) -> u64;

    /// The source's place after the last event, as index entries have it.
    fn source(&self) -> (String, u64);

    /// All transactions that the source had executed where the log ends, as index entries have them.
    fn executed(&self) -> String;

    fn progress(&self) -> Progress;

    /// Spool files that are still needed after the entries of the next cut are committed.
    fn spool_files(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a framer has seen. A format leaves out what its source does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    pub transactions: u64,
    pub events: u64,
    /// Transactions that were before the log's start.
    pub dropped: u64,
    /// How often the source has said that it lost events.
    pub incidents: u64,
    pub last_commit_us: Option<u64>,
    /// Bytes of a transaction whose place in the log is not known yet.
    pub undecided_bytes: u64,
    /// Whether the expected transaction has come, and was equal.
    pub verified: bool,
    /// Whether it has come, and was not equal.
    pub diverged: bool,
    /// Whether the server has said that its log ends.
    pub ended: bool,
    /// Code, SQLSTATE and message of the error that ended the stream.
    pub server_error: Option<(u16, String, String)>,
}

/// One step of writing.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes to append to the open segment.
    Bytes(Vec<u8>),
    /// Bytes to append to a spool file of prepared transactions. The first ones create it.
    Spool { name: String, bytes: Vec<u8> },
    /// `(start, end]` of row events, returned before, that the transaction has rolled back.
    TakenBack { start: u64, end: u64 },
    /// A new segment at the offset `base`, whose file begins with `head`. `entries` close the one before.
    Segment { base: u64, head: Vec<u8>, entries: Vec<String> },
}
