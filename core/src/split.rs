//! The part of a segment that one decoder reads.

use crate::error::{DecodeError, Result};
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

/// The positions of a file that a scan visits.
pub struct Visits {
    /// Where the next event begins if positions are not listed. The scan moves it.
    pub position: u64,
    pub end: u64,
    /// The next one is the last element.
    listed: Option<Vec<u64>>,
}

impl Split {
    /// `first`: the position of the file's first event.
    pub fn visits(&self, first: u64) -> Result<Visits> {
        let at = |offset: u64, what: &str| {
            offset.checked_sub(self.base).ok_or_else(|| {
                let base = self.base;
                let reason = format!("the {what} of the range is before its segment, which begins at {base}");
                DecodeError::new(reason, offset).in_file(self.file.name())
            })
        };
        Ok(Visits {
            position: at(self.start, "start")?.max(first),
            end: at(self.end, "end")?,
            listed: self.positions.as_ref().map(|positions| positions.iter().rev().copied().collect()),
        })
    }
}

impl Visits {
    /// The position of the next event to be read.
    #[inline]
    pub fn next_position(&mut self) -> Option<u64> {
        match &mut self.listed {
            None => Some(self.position),
            Some(listed) => listed.pop(),
        }
        .filter(|position| *position < self.end)
    }
}
