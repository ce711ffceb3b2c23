//! The part of a segment that one decoder reads.

use crate::segment_file::SegmentFile;

/// The events of one segment that end in `(start, end]`: `penstock.model.offset.Split`.
#[derive(Debug, Clone)]
pub struct Split {
    pub file: SegmentFile,
    /// The offset of the file's first byte.
    pub base: u64,
    pub start: u64,
    pub end: u64,
    /// File, base and offset of the events to read first.
    pub preamble: Vec<(SegmentFile, u64, u64)>,
    /// Positions in the file of the events to read, in order (`Outline::positions`). None: unknown, so all
    /// events are visited.
    pub positions: Option<Vec<u64>>,
}
