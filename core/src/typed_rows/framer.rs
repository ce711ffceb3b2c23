//! From the records of a receiver to the segments and the index of its relay log.

use super::{BEGIN, COMMIT, DEFINITION, MOVED, NAME, NOTE, ROWS, STATEMENT};
use crate::error::{DecodeError, Result};
use crate::framing::Options;
use crate::json_text::quoted;
use crate::mysql::span::{Place, Tracker};
use crate::records::{append, Record, HEAD, MAGIC};
use crate::segment_framer::{Piece, SegmentFramer};

const VERSION: u32 = 1;

/// Takes whole transactions. A segment begins between two of them.
pub struct RowsFramer {
    options: Options,
    pub tracker: Tracker,
    segment_base: Option<u64>,
    roll: bool,
    in_transaction: bool,
    pieces: Vec<Piece>,
    output: Vec<u8>,
    entries: Vec<String>,
}

impl RowsFramer {
    pub fn new(options: Options) -> Self {
        let executed = options.executed.clone().unwrap_or_default();
        Self {
            tracker: Tracker::new(options.offset, executed, options.source.clone()),
            options,
            segment_base: None,
            roll: false,
            in_transaction: false,
            pieces: Vec::new(),
            output: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn take(&mut self, record: &Record<'_>) -> Result<()> {
        let expected = match record.kind {
            BEGIN | MOVED => !self.in_transaction,
            DEFINITION | ROWS | STATEMENT | NOTE | COMMIT => self.in_transaction,
            _ => false,
        };
        if !expected {
            return Err(super::unexpected(record));
        }
        if record.kind == MOVED {
            let file = String::from_utf8_lossy(record.body).into_owned();
            self.tracker.moved(&Place { file, position: record.place });
            if self.segment_base.is_none() {
                self.open_segment(); // readers can open a log as soon as its start is known
            }
            return Ok(());
        }
        if record.kind == BEGIN {
            let full = |base: u64| self.tracker.end - base >= self.options.segment_size;
            if self.roll || self.segment_base.is_none_or(full) {
                self.open_segment();
            } else if self.tracker.span_bytes() >= self.options.span_size {
                self.entries.extend(self.tracker.cut(""));
            }
        }
        self.in_transaction = record.kind != COMMIT;
        // Its offset is where the log ends, which a segment's head may have moved.
        self.tracker.record(&Record { offset: self.tracker.end, ..*record })?;
        self.output.extend_from_slice(record.raw);
        Ok(())
    }

    fn open_segment(&mut self) {
        let closing = self.tracker.cut("");
        if self.segment_base.is_some() {
            self.entries.extend(closing);
        }
        let base = self.tracker.end;
        let named = format!("{{\"format\":{},\"version\":{VERSION}}}", quoted(NAME));
        let mut head = MAGIC.to_vec();
        append(HEAD, 0, named.as_bytes(), &mut head);
        self.flush_output();
        let (length, entries) = (head.len() as u64, std::mem::take(&mut self.entries));
        self.pieces.push(Piece::Segment { base, head, entries });
        self.tracker.padding(length);
        let extra = format!(
            ",\"head\":{{\"server_uuid\":{},\"gtids\":\"{}\",\"prepared\":[]}}",
            quoted(&self.options.server_uuid),
            self.tracker.executed,
        );
        self.entries.extend(self.tracker.cut(&extra));
        self.segment_base = Some(base);
        self.roll = false;
    }

    fn flush_output(&mut self) {
        if !self.output.is_empty() {
            self.pieces.push(Piece::Bytes(std::mem::take(&mut self.output)));
        }
    }
}

impl SegmentFramer for RowsFramer {
    /// `data`: whole records.
    fn feed(&mut self, mut data: &[u8]) -> Result<Vec<Piece>> {
        while !data.is_empty() {
            let Some(record) = Record::first(data, self.tracker.end)? else {
                return Err(DecodeError::new("a record is cut off", self.tracker.end));
            };
            self.take(&record)?;
            data = &data[record.raw.len()..];
        }
        self.flush_output();
        Ok(std::mem::take(&mut self.pieces))
    }

    fn more(&self) -> bool {
        false
    }

    fn cut(&mut self) -> Vec<String> {
        if self.segment_base.is_some() {
            self.entries.extend(self.tracker.cut(""));
        }
        std::mem::take(&mut self.entries)
    }

    fn roll(&mut self) {
        self.roll = true;
    }

    fn has_segment(&self) -> bool {
        self.segment_base.is_some()
    }

    fn offset(&self) -> u64 {
        self.tracker.end
    }

    fn committed(&self) -> u64 {
        self.tracker.committed
    }
}
