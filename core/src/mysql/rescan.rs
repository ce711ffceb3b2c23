//! Computes the entry of a part of a span by reading its events again. Readers need it when they want only a
//! part of what an entry describes.

use std::io::{Read, Seek, SeekFrom, Write};

use crate::digest::Digest;
use crate::error::{DecodeError, Result};
use crate::json_text::quoted;
use crate::mysql::checksum::Checksum;
use crate::mysql::event::{EventHeader, EventKind, HEADER_SIZE};
use crate::mysql::gtid::GtidSet;
use crate::mysql::place::Place;
use crate::mysql::query::{load_query, query_statement};
use crate::mysql::span::Tracker;
use crate::mysql::status::{Status, Updated};
use crate::segment_file::{SegmentFile, Source};

/// Reads the events in `(start, end]` of a segment and returns the entry of that part. `source` is the
/// source's place at `start`. If `start` is inside a transaction, `open` has the offsets of the events to
/// read first: the GTID event, then the current table maps, in log order. Savepoints before `start` are not
/// known, so a ROLLBACK TO one of them is no statement of the entry.
pub fn index_entry(
    file: &SegmentFile,
    base: u64,
    start: u64,
    end: u64,
    open: &[u64],
    source: Place,
) -> Result<String> {
    let mut reader = Events::open(file, base)?;
    let mut tracker = Tracker::new(start, GtidSet::default(), source);
    let mut event = Vec::new();
    for &offset in open {
        reader.seek(offset)?;
        reader.next_into(&mut event, end)?;
        reader.account(&mut tracker, &event, offset)?;
        // The event after the GTID shows how the transaction will end: BEGIN, XA START, or another one.
        if EventKind(event[4]).is_gtid() && reader.offset < start {
            let begin = reader.offset;
            reader.next_into(&mut event, end)?;
            if EventKind(event[4]) == EventKind::QUERY {
                reader.account(&mut tracker, &event, begin)?;
            }
        }
    }
    tracker.forget_before(start);
    reader.seek(start)?;
    let mut offset = start;
    while offset < end {
        reader.next_into(&mut event, end)?;
        reader.account(&mut tracker, &event, offset)?;
        offset += event.len() as u64;
    }
    Ok(tracker.entry(""))
}

/// Turns the row events in `(start, end]` of a segment into IGNORABLE events, because their transaction
/// rolled them back. Must be called before anybody reads them. The index still counts them, so its counts are
/// upper bounds.
pub fn take_back(path: &str, base: u64, start: u64, end: u64) -> Result<()> {
    let segment = SegmentFile::from(path);
    let mut reader = Events::open(&segment, base)?;
    reader.seek(start)?;
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let mut file = file.map_err(|error| reader.fail(error))?;
    let (mut event, mut offset) = (Vec::new(), start);
    while offset < end {
        reader.next_into(&mut event, end)?;
        if EventKind(event[4]).is_rows() {
            event[4] = EventKind::IGNORABLE.0;
            let flags = u16::from_le_bytes([event[17], event[18]]) | EventHeader::FLAG_IGNORABLE;
            event[17..19].copy_from_slice(&flags.to_le_bytes());
            event.truncate(event.len() - reader.checksum.size());
            reader.checksum.append(&mut event);
            let written = file.seek(SeekFrom::Start(offset - base)).and_then(|_| file.write_all(&event));
            written.map_err(|error| reader.fail(error))?;
        }
        offset += event.len() as u64;
    }
    Ok(())
}

/// Length and digest of the events in `(start, end]` of a segment. Verifies their checksums.
pub fn digest(file: &SegmentFile, base: u64, start: u64, end: u64) -> Result<(u64, u64)> {
    let mut reader = Events::open(file, base)?;
    reader.seek(start)?;
    let (mut event, mut offset, mut digest) = (Vec::new(), start, Digest::default());
    while offset < end {
        reader.next_into(&mut event, end)?;
        if !reader.checksum.verify(&event) {
            let reason = "the event is damaged: its checksum is wrong";
            return Err(DecodeError::new(reason, offset).in_file(file.name()));
        }
        digest.update(&event);
        offset += event.len() as u64;
    }
    Ok(digest.finish())
}

/// The whole statement of the event at an offset of a segment, as JSON: `{"database", "sql"}`, `sql_mode`
/// and `server_charset` if the event has them, and `updates`, the databases that the statement wrote to
/// (null: the event does not list them; missing: it says nothing about them). None: the statement is longer
/// than `length_max` bytes, or the event has none.
pub fn whole_statement(
    file: &SegmentFile,
    base: u64,
    offset: u64,
    length_max: u64,
) -> Result<Option<String>> {
    let mut reader = Events::open(file, base)?;
    reader.seek(offset)?;
    let mut event = Vec::new();
    if reader.next_length()? > length_max {
        return Ok(None);
    }
    reader.next_into(&mut event, u64::MAX)?;
    let body = reader.body(&event)?;
    let statement = match EventKind(event[4]) {
        EventKind::QUERY => query_statement(body, offset + HEADER_SIZE as u64),
        EventKind::EXECUTE_LOAD_QUERY => load_query(body, offset + HEADER_SIZE as u64),
        _ => return Ok(None),
    };
    let statement = statement.map_err(|error| error.in_file(file.name()))?;
    let database = quoted(&String::from_utf8_lossy(statement.database));
    let status = Status::parse(statement.variables);
    let mut text = format!("{{\"database\":{database},\"sql\":{}", quoted(&status.text(statement.sql)));
    if let Some(mode) = status.sql_mode {
        text.push_str(&format!(",\"sql_mode\":{mode}"));
    }
    if let Some(charset) = status.server_charset() {
        text.push_str(&format!(",\"server_charset\":{}", quoted(charset)));
    }
    match status.updated {
        Updated::Unsaid => {}
        Updated::Unlisted => text.push_str(",\"updates\":null"),
        Updated::Listed(names) => {
            let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            text.push_str(&format!(",\"updates\":[{}]", names.join(",")));
        }
    }
    text.push('}');
    Ok(Some(text))
}

/// The events of a segment file, one after the other.
struct Events<'a> {
    path: &'a str,
    base: u64,
    offset: u64,
    checksum: Checksum,
    file: std::io::BufReader<Box<dyn Source>>,
}

impl<'a> Events<'a> {
    fn open(file: &'a SegmentFile, base: u64) -> Result<Events<'a>> {
        let path = file.name();
        let file =
            file.open().map_err(|error| DecodeError::of_io("cannot be opened", error, base).in_file(path))?;
        let file = std::io::BufReader::with_capacity(1 << 20, file);
        let mut events = Events { path, base, offset: base, checksum: Checksum::None, file };
        events.seek(base + 4)?;
        let mut head = Vec::new();
        events.next_into(&mut head, u64::MAX)?;
        if head.get(4) != Some(&EventKind::FORMAT_DESCRIPTION.0) {
            return Err(DecodeError::new("a binlog file must begin with a format description", base + 4)
                .in_file(path));
        }
        let announced = Checksum::announced_by(&head[HEADER_SIZE..], base + 4 + HEADER_SIZE as u64);
        events.checksum = announced.map_err(|error| error.in_file(path))?.unwrap_or_default();
        Ok(events)
    }

    fn seek(&mut self, offset: u64) -> Result<()> {
        self.offset = offset;
        let position = offset.saturating_sub(self.base);
        self.file.seek(SeekFrom::Start(position)).map_err(|error| self.unreadable(error)).map(drop)
    }

    /// Length of the next event.
    fn next_length(&mut self) -> Result<u64> {
        let mut head = [0; HEADER_SIZE];
        self.file.read_exact(&mut head).map_err(|error| self.unreadable(error))?;
        let length = EventHeader::parse(&head, self.offset)?.size;
        self.seek(self.offset)?;
        Ok(length.into())
    }

    fn next_into(&mut self, event: &mut Vec<u8>, end: u64) -> Result<()> {
        event.clear();
        let mut head = [0; HEADER_SIZE];
        self.file.read_exact(&mut head).map_err(|error| self.unreadable(error))?;
        let length = u64::from(EventHeader::parse(&head, self.offset)?.size);
        if self.offset.saturating_add(length) > end {
            return Err(self.fail("the end of the range is not the end of an event"));
        }
        event.extend_from_slice(&head);
        let rest = length - HEADER_SIZE as u64;
        let got = self.file.by_ref().take(rest).read_to_end(event);
        let got = got.map_err(|error| self.unreadable(error))?;
        if got as u64 != rest {
            return Err(self.fail("the event is cut off"));
        }
        self.offset += length;
        Ok(())
    }

    /// What is between an event's header and its checksum.
    fn body<'b>(&self, event: &'b [u8]) -> Result<&'b [u8]> {
        let end = event.len().saturating_sub(self.checksum.size());
        event.get(HEADER_SIZE..end).ok_or_else(|| self.fail("the event is cut off"))
    }

    fn account(&self, tracker: &mut Tracker, event: &[u8], offset: u64) -> Result<()> {
        let header = EventHeader::parse(event, offset)?;
        if matches!(header.kind, EventKind::FORMAT_DESCRIPTION | EventKind::PREVIOUS_GTIDS) {
            return Ok(());
        }
        let body = self.body(event)?;
        tracker.event(&header, body, event.len(), offset).map_err(|error| error.in_file(self.path))
    }

    #[cold]
    fn unreadable(&self, cause: std::io::Error) -> DecodeError {
        DecodeError::of_io("cannot be read", cause, self.offset).in_file(self.path)
    }

    #[cold]
    fn fail(&self, reason: impl ToString) -> DecodeError {
        DecodeError::new(reason.to_string(), self.offset).in_file(self.path)
    }
}
