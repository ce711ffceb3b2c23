//! Reads one binlog file through a window of limited size, forwards or backwards. Checksums are verified,
//! because an event may have been damaged on the disk since it was received.

use crate::error::{DecodeError, Result};
use crate::mysql::checksum::Checksum;
use crate::mysql::event::{Event, EventHeader, EventKind, FormatDescription, HEADER_SIZE, MAGIC};
use crate::segment_file::{SegmentFile, Source};
use crate::window::{Direction, Window, WINDOW, WINDOW_FOR_FEW};

/// A file. Its byte 0 has the offset `base`. Errors name the file and the offset.
pub struct LogFile {
    window: Window,
    format: FormatDescription,
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
        let window = Window::open(file, base, window_size)?;
        Self::through(window, window_size).map_err(|error| error.in_file(file.name()))
    }

    /// Reads bytes in memory as a file.
    pub fn of_bytes(bytes: Vec<u8>, base: u64) -> Result<Self> {
        Self::over(Box::new(std::io::Cursor::new(bytes)), "", base, WINDOW)
    }

    fn over(file: Box<dyn Source>, path: &str, base: u64, window_size: u64) -> Result<Self> {
        Self::through(Window::over(file, path, base, window_size), window_size)
    }

    fn through(window: Window, window_size: u64) -> Result<Self> {
        let mut log = Self {
            window,
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
        log.window.length = window_size;
        Ok(log)
    }

    fn read_format(&mut self) -> Result<()> {
        if self.window.read(0, MAGIC.len(), Direction::Forward)? != MAGIC {
            return Err(DecodeError::new("this is no binary log: the magic number is missing", self.base()));
        }
        let header = self.header(4, u64::MAX)?;
        if header.kind != EventKind::FORMAT_DESCRIPTION {
            let reason = format!("the first event is of type {}, not a format description", header.kind.0);
            return Err(DecodeError::new(reason, self.base() + 4));
        }
        let event = self.event(4, header, Direction::Forward)?;
        self.format = FormatDescription::parse(&event)?;
        Ok(())
    }

    /// Only events that end at or before `position` will be read, apart from a few.
    pub fn read_to(&mut self, position: u64) {
        self.window.read_to = position;
    }

    pub fn path(&self) -> &str {
        self.window.path()
    }

    pub fn base(&self) -> u64 {
        self.window.base()
    }

    pub fn format(&self) -> &FormatDescription {
        &self.format
    }

    /// The header of the event at `position`, which must end at or before `limit`.
    pub fn header(&mut self, position: u64, limit: u64) -> Result<EventHeader> {
        let base = self.base();
        let bytes = self.window.read(position, HEADER_SIZE, Direction::Forward)?;
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
        let (base, checksum) = (self.base(), self.format.checksum);
        let raw = self.window.read(position, header.size as usize, direction)?;
        if !checksum.verify(raw) {
            return Err(DecodeError::new("the event is damaged: its checksum is wrong", base + position));
        }
        Event::whole(header, raw, base + position, checksum)
    }

    /// The event's first bytes after the header, as many as there are up to `length`.
    pub fn body_start(&mut self, position: u64, header: EventHeader, length: usize) -> Result<&[u8]> {
        let length = (HEADER_SIZE + length).min(header.size as usize);
        Ok(&self.window.read(position, length, Direction::Forward)?[HEADER_SIZE..])
    }
}
