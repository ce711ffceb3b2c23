//! The events of one binlog file, one in memory at a time.
//!
//! A length in a header that exceeds the file is an error, so a wrong one allocates no memory. Checksums are
//! checked if the file has them.

use std::io::{BufReader, Read, Seek, SeekFrom};

use crate::error::{DecodeError, Result};
use crate::mysql::checksum::Checksum;
use crate::mysql::event::{Event, EventHeader, EventKind, FormatDescription, HEADER_SIZE, MAGIC};
use crate::segment_file::{SegmentFile, Source};

const MAGIC_ENCRYPTED: [u8; 4] = *b"\xfdbin";
const BUFFER_SIZE: usize = 1 << 20;
const UNREADABLE: &str = "the file cannot be read";

/// The bytes of one event. `event()` borrows them.
pub struct RawEvent {
    pub header: EventHeader,
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub checksum: Checksum,
}

impl RawEvent {
    /// Memory for the next event.
    pub fn empty() -> Self {
        let kind = EventKind::UNKNOWN;
        let header = EventHeader { timestamp: 0, kind, server_id: 0, size: 0, end_position: 0, flags: 0 };
        Self { header, offset: 0, bytes: Vec::new(), checksum: Checksum::None }
    }

    pub fn event(&self) -> Result<Event<'_>> {
        Event::whole(self.header, &self.bytes, self.offset, self.checksum)
    }
}

pub struct FileEvents {
    reader: BufReader<Box<dyn Source>>,
    length: u64,
    position: u64,
    format: FormatDescription,
}

impl FileEvents {
    /// Reads the head of the file: magic, and the format of what follows. Nothing beyond `end` is read.
    pub fn open(file: &SegmentFile, end: Option<u64>) -> Result<Self> {
        let failed = |error| DecodeError::of_io(UNREADABLE, error, 0);
        let length = end.unwrap_or(u64::MAX).min(file.size().map_err(failed)?);
        Self::over(BufReader::with_capacity(BUFFER_SIZE, file.open().map_err(failed)?), length)
    }

    /// A file of these bytes in memory.
    pub fn of_bytes(bytes: Vec<u8>) -> Result<Self> {
        let length = bytes.len() as u64;
        Self::over(BufReader::with_capacity(4096, Box::new(std::io::Cursor::new(bytes))), length)
    }

    fn over(reader: BufReader<Box<dyn Source>>, length: u64) -> Result<Self> {
        let mut events = Self { reader, length, position: 0, format: default_format() };
        events.read_head()?;
        Ok(events)
    }

    pub fn format(&self) -> &FormatDescription {
        &self.format
    }

    /// Goes to an event whose position is known.
    pub fn seek(&mut self, position: u64) -> Result<()> {
        self.reader.seek(SeekFrom::Start(position)).map_err(|error| self.failed(error))?;
        self.position = position;
        Ok(())
    }

    /// Reads the next event into `raw`. Returns false at the end of the file.
    pub fn next_into(&mut self, raw: &mut RawEvent) -> Result<bool> {
        let left = self.length.saturating_sub(self.position);
        if left == 0 {
            return Ok(false);
        }
        if left < HEADER_SIZE as u64 {
            return Err(self.cut(format!("the file ends {left} bytes into an event header")));
        }
        raw.bytes.clear();
        self.fill(&mut raw.bytes, HEADER_SIZE as u64)?;
        raw.header = EventHeader::parse(&raw.bytes, self.position)?;
        raw.offset = self.position;
        let size = u64::from(raw.header.size);
        if size > left {
            return Err(
                self.cut(format!("the file ends inside an event: it has {size} bytes, {left} are left"))
            );
        }
        self.fill(&mut raw.bytes, size - HEADER_SIZE as u64)?;
        if raw.header.kind == EventKind::FORMAT_DESCRIPTION {
            self.read_format(raw)?;
        }
        raw.checksum = self.format.checksum;
        if !verified(raw) {
            return Err(self.cut("the checksum of an event is wrong".to_owned()));
        }
        self.position += size;
        Ok(true)
    }

    fn read_head(&mut self) -> Result<()> {
        let mut head = Vec::with_capacity(64);
        self.fill(&mut head, self.length.min(4))?;
        match head.first_chunk::<4>() {
            Some(&MAGIC) => self.position = 4,
            Some(&MAGIC_ENCRYPTED) => {
                return Err(
                    self.cut("the file is encrypted (binlog_encryption of MySQL); it cannot be read".into())
                )
            }
            Some([0x1f, 0x8b, ..]) => {
                return Err(self.cut("the file is packed with gzip; unpack it first".into()))
            }
            _ if self.length == 0 => return Err(self.cut("the file is empty".into())),
            _ => {}
        }
        let mut first = Vec::with_capacity(HEADER_SIZE);
        self.seek(self.position)?;
        self.fill(&mut first, (self.length - self.position).min(HEADER_SIZE as u64))?;
        self.judge_first(&first)?;
        self.seek(self.position)
    }

    /// Finds the format by the first event. If it is no FORMAT_DESCRIPTION, the format is that of MySQL 5.1
    /// to 5.5, with checksums if the first event ends with its CRC32.
    fn judge_first(&mut self, first: &[u8]) -> Result<()> {
        if first.is_empty() {
            return Ok(());
        }
        let kind = first.get(4).copied();
        if self.position == 4 && kind == Some(EventKind::START_V3.0) {
            let reason =
                "binlog version 1 or 3 (MySQL 3.23 to 4.1) is not supported; version 4 is (5.0 and later)";
            return Err(self.cut(reason.into()));
        }
        let header = EventHeader::parse(first, self.position).ok();
        let left = self.length - self.position;
        let fits = header.as_ref().is_some_and(|header| u64::from(header.size) <= left);
        if self.position == 0 && !fits {
            return Err(self.cut("this is not a binlog file: it does not begin with fe 62 69 6e".into()));
        }
        if let Some(header) = header.filter(|header| fits && header.kind != EventKind::FORMAT_DESCRIPTION) {
            let mut event = Vec::new();
            self.seek(self.position)?;
            self.fill(&mut event, u64::from(header.size))?;
            if event.len() > HEADER_SIZE + 4 && Checksum::Crc32.verify(&event) {
                self.format.checksum = Checksum::Crc32;
            }
        }
        Ok(())
    }

    fn read_format(&mut self, raw: &RawEvent) -> Result<()> {
        let event = Event::whole(raw.header, &raw.bytes, self.position, Checksum::None)?;
        self.format = FormatDescription::parse(&event)?;
        Ok(())
    }

    fn fill(&mut self, bytes: &mut Vec<u8>, count: u64) -> Result<()> {
        let before = bytes.len();
        let got = Read::by_ref(&mut self.reader).take(count).read_to_end(bytes);
        got.map_err(|error| self.failed(error))?;
        if ((bytes.len() - before) as u64) < count {
            return Err(self.cut("the file has become shorter while it was read".into()));
        }
        Ok(())
    }

    #[cold]
    fn cut(&self, reason: String) -> DecodeError {
        DecodeError::new(reason, self.position)
    }

    #[cold]
    fn failed(&self, error: std::io::Error) -> DecodeError {
        DecodeError::of_io(UNREADABLE, error, self.position)
    }
}

/// A FORMAT_DESCRIPTION of an open file has the checksum of the closed file, in which a flag is not set.
fn verified(raw: &mut RawEvent) -> bool {
    const FLAGS: usize = 17;
    let in_use =
        raw.header.kind == EventKind::FORMAT_DESCRIPTION && raw.header.flags & EventHeader::FLAG_IN_USE != 0;
    if in_use {
        raw.bytes[FLAGS] &= !(EventHeader::FLAG_IN_USE as u8);
    }
    let verified = raw.checksum.verify(&raw.bytes);
    if in_use {
        raw.bytes[FLAGS] |= EventHeader::FLAG_IN_USE as u8;
    }
    verified
}

/// The format of a file without a FORMAT_DESCRIPTION: that of MySQL 5.1 to 5.5.
fn default_format() -> FormatDescription {
    FormatDescription {
        binlog_version: 4,
        server_version: String::new(),
        created: 0,
        header_size: HEADER_SIZE as u8,
        post_header_sizes: Vec::new(),
        checksum: Checksum::None,
    }
}
