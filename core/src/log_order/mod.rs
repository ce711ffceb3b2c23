//! Whole transactions in the order of the log, over all tables.
//!
//! Each transaction is read twice. The *survey* looks at headers, table maps and statements up to its end: it
//! finds the transaction's id, its last row, and rows that were taken back by ROLLBACK TO SAVEPOINT. Then the
//! *walk* gives its row events to whoever asked for them. So a row's message can have what the log says only
//! behind the row, and the memory does not depend on the transaction's size.
//!
//! Rows of an XA transaction are in the log where it was prepared. They are given at its XA COMMIT. (In a
//! relay log of Penstock they are there already.)

mod events;
mod source_names;
mod survey;

pub use self::events::Seen;
pub use self::source_names::{Known, SourceNames};
pub use self::survey::{LoggedStatement, Survey};

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::{DecodeError, Result};
use crate::event::FormatDescription;
use crate::log_file::LogFile;
use crate::segment_file::SegmentFile;

/// An event of the log, as headers of Canal name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventPlace {
    /// Its first byte in the source's file.
    pub position: u64,
    pub bytes: u32,
    pub timestamp: u32,
    pub server_id: u32,
}

/// What is known of a transaction before its first row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    pub gtid: Option<String>,
    /// When the server that ran it first committed it, in microseconds since 1970.
    pub commit_us: u64,
    /// Whether `commit_us` is from the GTID event, and not the second in which the statement began.
    pub commit_is_exact: bool,
    pub xid: Option<u64>,
    pub thread_id: Option<u32>,
    /// The source's file, and where in it the transaction begins.
    pub file: String,
    pub position: u64,
    /// The event that begins its rows, and its last one.
    pub begin_event: EventPlace,
    pub end_event: EventPlace,
    /// The part of the log, as offsets: (start, end].
    pub start: u64,
    pub end: u64,
}

impl Transaction {
    /// Makes whole positions of the low bits of the positions of its events.
    fn complete_places(&mut self) {
        for place in [&mut self.begin_event, &mut self.end_event] {
            place.position = match place.position {
                0 => self.position,
                low => whole_position(self.position, low as u32),
            };
        }
    }

    /// The time of a change at the source: of the commit where the log has it, else of the statement.
    pub fn source_us(&self, timestamp: u32) -> u64 {
        if self.commit_is_exact {
            self.commit_us
        } else {
            u64::from(timestamp) * 1_000_000
        }
    }
}

/// The position in the source's file of an event of a transaction that begins at `begin`, from its low bits.
pub fn whole_position(begin: u64, low: u32) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let position = begin & !LOW | u64::from(low);
    // Beyond the next multiple of 2^32.
    if position < begin && begin - position > LOW / 2 {
        position + LOW + 1
    } else {
        position
    }
}

/// A part of the log: of one file, between two transactions.
#[derive(Debug, Clone)]
pub struct Part {
    pub file: SegmentFile,
    /// The offset of the file's first byte.
    pub base: u64,
    /// Positions in the file. `end` None: the file's end.
    pub start: u64,
    pub end: Option<u64>,
    pub names: SourceNames,
}

/// The tables that are asked for.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Empty: all but those of the server itself.
    pub tables: HashSet<(String, String)>,
}

const OF_THE_SERVER: [&[u8]; 4] = [b"mysql", b"sys", b"performance_schema", b"information_schema"];

impl Selection {
    pub fn has(&self, database: &[u8], table: &[u8]) -> bool {
        if self.tables.is_empty() {
            return !OF_THE_SERVER.contains(&database);
        }
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.tables.contains(&(text(database), text(table)))
    }
}

/// The transactions of some parts, one after the other.
pub struct LogOrder {
    parts: std::vec::IntoIter<Part>,
    selection: Selection,
    open: Option<Open>,
    /// The prepared XA transactions, by xid.
    prepared: HashMap<String, Survey>,
}

/// A place in the walk over a transaction. The default is its begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    position: u64,
    number: u64,
}

impl Walked {
    /// The number of the last event before it.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Takes an event, and returns whether to go on.
pub type Take<'a> = dyn FnMut(&Seen<'_>, &FormatDescription) -> Result<bool> + 'a;

struct Open {
    part: Arc<Part>,
    file: LogFile,
    format: FormatDescription,
    position: u64,
    end: u64,
    names: SourceNames,
}

impl LogOrder {
    pub fn new(parts: Vec<Part>, selection: Selection) -> Self {
        Self { parts: parts.into_iter(), selection, open: None, prepared: HashMap::new() }
    }

    /// The next transaction, or statement outside of transactions. None: at the end.
    pub fn next_group(&mut self) -> Result<Option<Survey>> {
        loop {
            if self.open.is_none() {
                let Some(part) = self.parts.next() else { return Ok(None) };
                self.open = Some(Open::new(Arc::new(part))?);
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            let found = open.survey(&self.selection).map_err(|error| error.in_file(open.part.file.name()))?;
            let Some(survey) = found else {
                self.open = None;
                continue;
            };
            if let Some(survey) = self.resolve(survey)? {
                return Ok(Some(survey));
            }
        }
    }

    /// Puts the rows of XA transactions where they are committed.
    fn resolve(&mut self, mut survey: Survey) -> Result<Option<Survey>> {
        if let Some(xid) = survey.prepares.take() {
            self.prepared.insert(xid, survey);
            return Ok(None);
        }
        if let Some(xid) = survey.rolls_back.take() {
            self.prepared.remove(&xid);
        }
        let Some(xid) = survey.commits.take() else { return Ok(Some(survey)) };
        let Some(mut rows) = self.prepared.remove(&xid) else {
            let reason = "an XA transaction is committed here that was prepared before this log begins; \
                          begin with the file in which it was prepared";
            return Err(DecodeError::new(reason, survey.transaction.start).in_file(survey.part.file.name()));
        };
        let thread_id = rows.transaction.thread_id;
        rows.transaction = survey.transaction;
        rows.transaction.thread_id = thread_id;
        Ok(Some(rows))
    }

    /// Gives the row events of a transaction from a place on, and the events that they need (table maps, the
    /// text of statements), in order, until `take` returns false. Returns the place to go on from; None:
    /// there are no more rows.
    pub fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>> {
        let name = survey.part.file.name();
        let here = self
            .open
            .as_mut()
            .filter(|open| open.part.base == survey.part.base && open.part.file.name() == name);
        let walked = match here {
            Some(open) => survey.walk(&mut open.file, &open.format, from, take),
            // An XA transaction that was prepared in another file.
            None => {
                let mut open = Open::new(survey.part.clone())?;
                survey.walk(&mut open.file, &open.format, from, take)
            }
        };
        walked.map_err(|error| error.in_file(name))
    }
}
