//! From a source's bytes to the segments and the index of its relay log.

use crate::error::Result;

/// Cuts what a source sends into events, and finds where transactions end. It decides nothing about files and
/// clocks, and offsets are counted here only.
pub trait SegmentFramer {
    /// Takes bytes from the source; what has to be written before the next call. Call again with nothing
    /// while `more`.
    fn feed(&mut self, data: &[u8]) -> Result<Vec<Piece>>;

    /// Bytes that were fed wait inside.
    fn more(&self) -> bool;

    /// Index entries (JSON) for everything that `feed` has given since the last cut.
    fn cut(&mut self) -> Vec<String>;

    /// The next transaction begins a new segment.
    fn roll(&mut self);

    /// A segment is open: what `feed` gives can be appended.
    fn has_segment(&self) -> bool;

    /// The end of what `feed` has given.
    fn offset(&self) -> u64;

    /// The greatest offset up to now at which a transaction ends.
    fn committed(&self) -> u64;
}

/// One step of what is to be written, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// To append to the open segment.
    Bytes(Vec<u8>),
    /// To append to a spool file of prepared transactions; the first bytes make it.
    Spool { name: String, bytes: Vec<u8> },
    /// Row events in `(start, end]`, given before, that the transaction has taken back.
    TakenBack { start: u64, end: u64 },
    /// A new segment at the offset `base`, whose file begins with `head`. `entries` close the one before.
    Segment { base: u64, head: Vec<u8>, entries: Vec<String> },
}
