//! From the records of a receiver to the segments and the index of its relay log.

use std::collections::HashMap;

use super::family::Family;
use super::tracker::Tracker;
use super::write::Records;
use super::{
    begin_of, Named, BEGIN, COMMIT, DEFINITION, EXECUTED, MESSAGE, MOVED, NOTE, ROWS, STATEMENT, USE,
};
use crate::error::{DecodeError, Result};
use crate::framing;
use crate::json_text::quoted;
use crate::records::{append, Record, HEAD, MAGIC};
use crate::segment_framer::{Piece, Progress, SegmentFramer};

const VERSION: u32 = 1;
/// Limit of the definitions that are remembered. Then they are written once more.
const DEFINED_BYTES_MAX: usize = 32 << 20;

pub type Options<F> = framing::Options<<F as Family>::Set, <F as Family>::Place>;

/// Takes whole transactions. A segment begins between two of them.
pub struct RowsFramer<F: Family> {
    options: Options<F>,
    pub tracker: Tracker<F>,
    segment_base: Option<u64>,
    roll: bool,
    in_transaction: bool,
    has_statement: bool,
    /// The bodies of the span's definitions, and their positions in the segment, by id. Readers begin where
    /// spans do, and may have nothing of what is before.
    defined: HashMap<u64, (Vec<u8>, u64)>,
    defined_bytes: usize,
    pieces: Vec<Piece>,
    output: Vec<u8>,
    entries: Vec<String>,
}

impl<F: Family> RowsFramer<F> {
    pub fn new(options: Options<F>) -> Self {
        let executed = options.executed.clone().unwrap_or_default();
        Self {
            tracker: Tracker::new(options.offset, executed, options.source.clone()),
            options,
            segment_base: None,
            roll: false,
            in_transaction: false,
            has_statement: false,
            defined: HashMap::new(),
            defined_bytes: 0,
            pieces: Vec::new(),
            output: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn take(&mut self, record: &Record<'_>) -> Result<()> {
        let expected = match record.kind {
            BEGIN | MOVED | EXECUTED => !self.in_transaction,
            DEFINITION | USE | ROWS | MESSAGE | STATEMENT | NOTE | COMMIT => self.in_transaction,
            _ => false,
        };
        if !expected {
            return Err(super::unexpected(record));
        }
        if record.kind == MOVED {
            self.tracker.log.moved(&(String::new(), record.place).into(), true);
            if self.segment_base.is_none() {
                self.open_segment(); // readers can open a log as soon as its start is known
            }
            return Ok(());
        }
        if record.kind == EXECUTED {
            let set: F::Set = String::from_utf8_lossy(record.body).parse()?;
            self.tracker.log.note_executed(&set);
            return Ok(());
        }
        if record.kind == BEGIN && !self.goes_on(record)? {
            let full = |base: u64| self.tracker.log.end - base >= self.options.segment_size;
            if self.roll || self.segment_base.is_none_or(full) {
                self.open_segment();
            } else if self.tracker.log.span_bytes() >= self.options.span_size {
                self.entries.extend(self.tracker.cut(""));
                self.forget_definitions();
            }
        }
        self.in_transaction = record.kind != COMMIT;
        // Readers take one statement at a time, by its end.
        if self.has_statement && record.kind == STATEMENT {
            return Err(super::unexpected(record));
        }
        self.has_statement = self.in_transaction && (self.has_statement || record.kind == STATEMENT);
        if record.kind == DEFINITION {
            if let Some(used) = self.used(record)? {
                let Some(used) = Record::first(&used, self.tracker.log.end)? else { return Ok(()) };
                return self.store(&used);
            }
        }
        self.store(record)
    }

    /// Whether this is another part of the last transaction. Nothing ends between them.
    fn goes_on(&self, begin: &Record<'_>) -> Result<bool> {
        let (_, id) = begin_of(begin)?;
        let last = &self.tracker.log.ended;
        Ok(self.segment_base.is_some() && last.id == Some(id.parse()?))
    }

    fn forget_definitions(&mut self) {
        self.defined.clear();
        self.defined_bytes = 0;
    }

    /// The record that refers to an equal definition in this span. None: there is none; this is the first.
    fn used(&mut self, record: &Record<'_>) -> Result<Option<Vec<u8>>> {
        let Named { id, database, table, .. } = Named::parse(record)?;
        if let Some((body, at)) = self.defined.get(&id) {
            if body == record.body {
                let mut used = Records::default();
                used.used(record.place, id as u32, *at, (database, table));
                return Ok(Some(used.bytes));
            }
        }
        if self.defined_bytes > DEFINED_BYTES_MAX {
            self.forget_definitions();
        }
        self.defined_bytes += record.body.len();
        let at = self.tracker.log.end - self.segment_base.unwrap_or_default();
        self.defined.insert(id, (record.body.to_owned(), at));
        Ok(None)
    }

    fn store(&mut self, record: &Record<'_>) -> Result<()> {
        // Its offset is where the log ends, which a segment's head may have moved.
        self.tracker.record(&Record { offset: self.tracker.log.end, ..*record })?;
        self.output.extend_from_slice(record.raw);
        Ok(())
    }

    fn open_segment(&mut self) {
        let closing = self.tracker.cut("");
        if self.segment_base.is_some() {
            self.entries.extend(closing);
        }
        let base = self.tracker.log.end;
        let named = format!("{{\"format\":{},\"version\":{VERSION}}}", quoted(F::NAME));
        let mut head = MAGIC.to_vec();
        append(HEAD, 0, named.as_bytes(), &mut head);
        self.flush_output();
        let (length, entries) = (head.len() as u64, std::mem::take(&mut self.entries));
        self.pieces.push(Piece::Segment { base, head, entries });
        self.tracker.log.padding(length);
        let extra = self.tracker.log.head(&self.options.server_uuid, "[]");
        self.entries.extend(self.tracker.cut(&extra));
        self.segment_base = Some(base);
        self.forget_definitions();
        self.roll = false;
    }

    fn flush_output(&mut self) {
        if !self.output.is_empty() {
            self.pieces.push(Piece::Bytes(std::mem::take(&mut self.output)));
        }
    }
}

impl<F: Family> SegmentFramer for RowsFramer<F> {
    /// `data`: whole records.
    fn feed(&mut self, mut data: &[u8]) -> Result<Vec<Piece>> {
        while !data.is_empty() {
            let Some(record) = Record::first(data, self.tracker.log.end)? else {
                return Err(DecodeError::new("a record is cut off", self.tracker.log.end));
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
            self.forget_definitions();
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
        self.tracker.log.end
    }

    fn committed(&self) -> u64 {
        self.tracker.log.committed
    }

    fn source(&self) -> (String, u64) {
        self.tracker.log.source.clone().into()
    }

    fn executed(&self) -> String {
        self.tracker.log.executed.to_string()
    }

    fn progress(&self) -> Progress {
        Progress {
            transactions: self.tracker.log.transactions,
            events: self.tracker.events,
            last_commit_us: self.tracker.log.last_commit_us,
            ..Progress::default()
        }
    }
}
