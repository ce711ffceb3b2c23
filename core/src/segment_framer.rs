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
