//! Reads one binlog file through a window of limited size, forwards or backwards. Checksums are verified,
//! because an event may have been damaged on the disk since it was received.

use std::io::SeekFrom;

use crate::checksum::Checksum;
use crate::error::{DecodeError, Result};
use crate::event::{Event, EventHeader, EventKind, FormatDescription, HEADER_SIZE, MAGIC};
use crate::pool;
use crate::segment_file::{SegmentFile, Source};

/// Number of bytes read at once.
const WINDOW: u64 = 512 * 1024;
/// Bytes that a reader of only some events of a file reads at once.
const WINDOW_FOR_FEW: u64 = 16 * 1024;

/// A file. Its byte 0 has the offset `base`. Errors name the file and the offset.
pub struct LogFile {
    file: Box<dyn Source>,
    path: String,
    base: u64,
    size: u64,
    window_size: u64,
    window: Vec<u8>,
    window_start: u64,
    /// Windows that begin before it end there, unless an event needs more.
    read_to: u64,
    format: FormatDescription,
}

/// Which way the next windows will be needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

impl Drop for LogFile {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.window));
    }
}

impl LogFile {
    /// Opens the file and reads its format description.
    pub fn open(file: &SegmentFile, base: u64) -> Result<Self> {
        Self::open_with(file, base, WINDOW)
    }

    /// Opens a file of which only some events will be read.
    pub fn open_for_few(file: &SegmentFile, base: u64) -> Result<Self> {
        Self::open_with(file, base, WINDOW_FOR_FEW)
    }

    fn open_with(file: &SegmentFile, base: u64, window_size: u64) -> Result<Self> {
        let path = file.name();
        let opened = file.open().map_err(|error| DecodeError::of_io("cannot be opened", error, base));
        opened
            .and_then(|source| Self::over(source, path, base, window_size))
            .map_err(|error| error.in_file(path))
    }

    /// Reads bytes in memory as a file.
    pub fn of_bytes(bytes: Vec<u8>, base: u64) -> Result<Self> {
        Self::over(Box::new(std::io::Cursor::new(bytes)), "", base, WINDOW)
    }

    fn over(file: Box<dyn Source>, path: &str, base: u64, window_size: u64) -> Result<Self> {
        let mut log = Self {
            file,
            path: path.to_owned(),
            base,
            size: 0,
            // Of the file's head, only some bytes are needed.
            window_size: WINDOW_FOR_FEW,
            window: pool::take(window_size as usize),
            window_start: 0,
            read_to: u64::MAX,
            format: FormatDescription {
                binlog_version: 4,
                server_version: String::new(),
                created: 0,
                header_size: HEADER_SIZE as u8,
                post_header_sizes: Vec::new(),
                checksum: Checksum::None,
            },
        };
        log.read_format()?;
        log.window_size = window_size;
        Ok(log)
    }

    fn read_format(&mut self) -> Result<()> {
        if self.read(0, MAGIC.len(), Direction::Forward)? != MAGIC {
            return Err(DecodeError::new("this is no binary log: the magic number is missing", self.base));
        }
        let header = self.header(4, u64::MAX)?;
        if header.kind != EventKind::FORMAT_DESCRIPTION {
            let reason = format!("the first event is of type {}, not a format description", header.kind.0);
            return Err(DecodeError::new(reason, self.base + 4));
        }
        let event = self.event(4, header, Direction::Forward)?;
        self.format = FormatDescription::parse(&event)?;
        Ok(())
    }

    /// Only events that end at or before `position` will be read, apart from a few.
    pub fn read_to(&mut self, position: u64) {
        self.read_to = position;
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn format(&self) -> &FormatDescription {
        &self.format
    }

    /// The header of the event at `position`, which must end at or before `limit`.
    pub fn header(&mut self, position: u64, limit: u64) -> Result<EventHeader> {
        let base = self.base;
        let bytes = self.read(position, HEADER_SIZE, Direction::Forward)?;
        let header = EventHeader::parse(bytes, base + position)?;
        let end = position + u64::from(header.size);
        if end > limit {
            let reason = format!("an event of {} bytes reaches beyond the end of its range", header.size);
            return Err(DecodeError::new(reason, base + position));
        }
        Ok(header)
    }

    /// The whole event of a header that was read before. Its CRC32 is checked if it has one.
    pub fn event(&mut self, position: u64, header: EventHeader, direction: Direction) -> Result<Event<'_>> {
        let (base, checksum) = (self.base, self.format.checksum);
        let raw = self.read(position, header.size as usize, direction)?;
        if !checksum.verify(raw) {
            return Err(DecodeError::new("the event is damaged: its checksum is wrong", base + position));
        }
        Event::whole(header, raw, base + position, checksum)
    }

    /// The event's first bytes after the header, as many as there are up to `length`.
    pub fn body_start(&mut self, position: u64, header: EventHeader, length: usize) -> Result<&[u8]> {
        let length = (HEADER_SIZE + length).min(header.size as usize);
        Ok(&self.read(position, length, Direction::Forward)?[HEADER_SIZE..])
    }

    /// Bytes of the file. Allocates no more than the file has.
    fn read(&mut self, position: u64, length: usize, direction: Direction) -> Result<&[u8]> {
        let end = position.saturating_add(length as u64);
        let window_end = self.window_start + self.window.len() as u64;
        if position < self.window_start || end > window_end {
            self.load(position, end, direction)?;
        }
        let start = (position - self.window_start) as usize;
        Ok(&self.window[start..start + length])
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
                (position, end.max(read_to.min(position + self.window_size)).min(self.size))
            }
            Direction::Backward => (position.min(end.saturating_sub(self.window_size)), end),
        };
        self.window.resize((end - start) as usize, 0);
        self.window_start = start;
        let read =
            self.file.seek(SeekFrom::Start(start)).and_then(|_| self.file.read_exact(&mut self.window));
        if let Err(error) = read {
            self.window.clear();
            return Err(failed(error));
        }
        // The memory of one huge event is not kept for the rest of the file.
        if self.window.capacity() as u64 > 8 * WINDOW && self.window.len() as u64 <= WINDOW {
            self.window.shrink_to_fit();
        }
        Ok(())
    }
}
