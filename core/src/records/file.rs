//! Reads one file of records. Checksums are verified, because a record may have been damaged on the disk.

use super::{Header, Record, HEAD, HEADER_SIZE, MAGIC};
use crate::digest::Digest;
use crate::error::{DecodeError, Result};
use crate::segment_file::SegmentFile;
use crate::window::{Direction, Window, WINDOW, WINDOW_FOR_FEW};

/// A file. Its byte 0 has the offset `base`. Errors name the file and the offset.
pub struct RecordFile {
    window: Window,
    /// Where the records behind the head begin.
    start: u64,
    /// The last record whose checksum was verified: its position, and `Window::loads`.
    verified: Option<(u64, u64)>,
}

impl RecordFile {
    /// Opens a file of the format.
    pub fn open(file: &SegmentFile, base: u64, format: &str) -> Result<Self> {
        Self::through(Window::open(file, base, WINDOW)?, WINDOW, format)
            .map_err(|error| error.in_file(file.name()))
    }

    /// Opens a file of which only some records will be read.
    pub fn open_for_few(file: &SegmentFile, base: u64, format: &str) -> Result<Self> {
        Self::through(Window::open(file, base, WINDOW_FOR_FEW)?, WINDOW_FOR_FEW, format)
            .map_err(|error| error.in_file(file.name()))
    }

    /// Reads bytes in memory as a file.
    pub fn of_bytes(bytes: Vec<u8>, base: u64, format: &str) -> Result<Self> {
        Self::through(Window::over(Box::new(std::io::Cursor::new(bytes)), "", base, WINDOW), WINDOW, format)
    }

    fn through(window: Window, length: u64, format: &str) -> Result<Self> {
        let mut file = Self { window, start: MAGIC.len() as u64, verified: None };
        let base = file.base();
        if file.window.read(0, MAGIC.len(), Direction::Forward)? != MAGIC {
            return Err(DecodeError::new("this is no file of records: the magic number is missing", base));
        }
        let header = file.header(file.start, u64::MAX)?;
        let record = file.record(file.start, header, Direction::Forward)?;
        let named = serde_json::from_slice::<serde_json::Value>(record.body).ok();
        let named = named.as_ref().and_then(|head| head.get("format")?.as_str());
        if record.kind != HEAD || named != Some(format) {
            let reason = format!("the file does not say that its format is `{format}`");
            return Err(DecodeError::new(reason, base));
        }
        file.start += header.size;
        file.window.length = length;
        Ok(file)
    }

    /// Only records that end at or before `position` will be read, apart from a few.
    pub fn read_to(&mut self, position: u64) {
        self.window.read_to = position;
    }

    /// The position of the first record behind the head.
    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn path(&self) -> &str {
        self.window.path()
    }

    pub fn base(&self) -> u64 {
        self.window.base()
    }

    /// The header of the record at `position`, which must end at or before `limit`.
    pub fn header(&mut self, position: u64, limit: u64) -> Result<Header> {
        let offset = self.base() + position;
        let header = Header::parse(self.window.read(position, HEADER_SIZE, Direction::Forward)?, offset)?;
        if position.saturating_add(header.size) > limit {
            let reason = format!("a record of {} bytes reaches beyond the end of its range", header.size);
            return Err(DecodeError::new(reason, offset));
        }
        Ok(header)
    }

    /// The whole record of a header that was read before.
    pub fn record(&mut self, position: u64, header: Header, direction: Direction) -> Result<Record<'_>> {
        let (offset, size) = (self.base() + position, header.size as usize);
        if self.verified != Some((position, self.window.loads)) {
            self.verified = None;
            Record::whole(header, self.window.read(position, size, direction)?, offset)?;
            self.verified = Some((position, self.window.loads));
        }
        Ok(Record::of(header, self.window.read(position, size, direction)?, offset))
    }

    /// Gives the records in `(start, end]` (offsets) to `take`.
    pub fn each(
        &mut self,
        (start, end): (u64, u64),
        take: &mut dyn FnMut(&Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let base = self.base();
        let (mut position, end) = (start.saturating_sub(base).max(self.start), end.saturating_sub(base));
        self.read_to(end);
        while position < end {
            let header = self.header(position, end)?;
            take(&self.record(position, header, Direction::Forward)?)?;
            position += header.size;
        }
        Ok(())
    }

    /// Length and digest of the records in `(start, end]` (offsets).
    pub fn digest(&mut self, start: u64, end: u64) -> Result<(u64, u64)> {
        let mut digest = Digest::default();
        self.each((start, end), &mut |record| {
            digest.update(record.raw);
            Ok(())
        })?;
        Ok(digest.finish())
    }
}
