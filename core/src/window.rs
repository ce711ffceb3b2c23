//! Bytes of one file through a window of limited size, forwards or backwards.

use std::io::SeekFrom;

use crate::error::{DecodeError, Result};
use crate::pool;
use crate::segment_file::{SegmentFile, Source};

/// Number of bytes read at once.
pub const WINDOW: u64 = 512 * 1024;
/// Bytes that a reader of only some events of a file reads at once.
pub const WINDOW_FOR_FEW: u64 = 16 * 1024;

/// A file. Its byte 0 has the offset `base`.
pub struct Window {
    file: Box<dyn Source>,
    path: String,
    base: u64,
    size: u64,
    /// How many bytes are read at once.
    pub length: u64,
    bytes: Vec<u8>,
    start: u64,
    /// How often bytes were read from the file.
    pub loads: u64,
    /// Windows that begin before it end there, unless an event needs more.
    pub read_to: u64,
}

/// Which way the next windows will be needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

impl Drop for Window {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.bytes));
    }
}

impl Window {
    pub fn open(file: &SegmentFile, base: u64, length: u64) -> Result<Self> {
        let path = file.name();
        match file.open() {
            Ok(source) => Ok(Self::over(source, path, base, length)),
            Err(error) => Err(DecodeError::of_io("cannot be opened", error, base).in_file(path)),
        }
    }

    pub fn over(file: Box<dyn Source>, path: &str, base: u64, length: u64) -> Self {
        Self {
            file,
            path: path.to_owned(),
            base,
            size: 0,
            // Of the file's head, only some bytes are needed.
            length: WINDOW_FOR_FEW,
            bytes: pool::take(length as usize),
            start: 0,
            loads: 0,
            read_to: u64::MAX,
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of the file. Allocates no more than the file has.
    #[inline]
    pub fn read(&mut self, position: u64, length: usize, direction: Direction) -> Result<&[u8]> {
        let end = position.saturating_add(length as u64);
        let window_end = self.start + self.bytes.len() as u64;
        if position < self.start || end > window_end {
            self.load(position, end, direction)?;
        }
        let start = (position - self.start) as usize;
        Ok(&self.bytes[start..start + length])
    }

    #[cold]
    fn load(&mut self, position: u64, end: u64, direction: Direction) -> Result<()> {
        let failed = |error| DecodeError::of_io("cannot be read", error, self.base + position);
        if end > self.size {
            // An open segment grows.
            self.size = self.file.seek(SeekFrom::End(0)).map_err(failed)?;
        }
        if end > self.size {
            let reason = format!("the file ends at {}, inside an event or before it", self.base + self.size);
            return Err(DecodeError::new(reason, self.base + position));
        }
        let (start, end) = match direction {
            Direction::Forward => {
                let read_to = if position < self.read_to { self.read_to } else { u64::MAX };
                (position, end.max(read_to.min(position + self.length)).min(self.size))
            }
            Direction::Backward => (position.min(end.saturating_sub(self.length)), end),
        };
        self.bytes.resize((end - start) as usize, 0);
        self.start = start;
        self.loads += 1;
        let read = self.file.seek(SeekFrom::Start(start)).and_then(|_| self.file.read_exact(&mut self.bytes));
        if let Err(error) = read {
            self.bytes.clear();
            return Err(failed(error));
        }
        // The memory of one huge event is not kept for the rest of the file.
        if self.bytes.capacity() as u64 > 8 * WINDOW && self.bytes.len() as u64 <= WINDOW {
            self.bytes.shrink_to_fit();
        }
        Ok(())
    }
}
