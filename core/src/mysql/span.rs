//! Computes index entries: collects, event by event, what a span of the log contains.
//!
//! The receiver uses `Tracker` for events as they arrive. Readers use it for a part of a closed segment's
//! entry, by reading the part's events again (`rescan.rs`).

mod doubts;
mod entry;
mod record;
mod table_names;

use std::fmt::Write as _;

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::json_text::quoted;
use crate::mysql::event::{EventHeader, EventKind, HEADER_SIZE};
use crate::mysql::group::{Group, Step};
use crate::mysql::gtid::{Gtid, GtidSet};
use crate::mysql::gtid_event::GtidEvent;
use crate::mysql::query::Statement;
use crate::mysql::row_event::is_dummy;
use crate::mysql::savepoints::Savepoint;
use crate::mysql::status::{Status, Updated};
use crate::mysql::xa::Change;

use doubts::Doubts;
use table_names::TableNames;

/// A position in the source's own binary log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    pub file: String,
    pub position: u64,
}

impl Place {
    fn number(&self) -> u64 {
        self.file.rsplit('.').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    pub fn is_before(&self, other: &Place) -> bool {
        (self.number(), self.position) < (other.number(), other.position)
    }

    /// Advances to the end of an event. The log has only the low 32 bits of it.
    #[inline]
    pub fn advance(&mut self, log_pos: u32) {
        self.position = self.advanced(log_pos);
    }

    /// The position to which `advance` would move.
    #[inline]
    pub fn advanced(&self, log_pos: u32) -> u64 {
        let mut position = self.position & !0xffff_ffff | u64::from(log_pos);
        if position < self.position && self.position - position > 1 << 31 {
            position += 1 << 32;
        }
        position.max(self.position)
    }
}

/// Most bytes of a statement in an index entry. The whole statement can be read at its offset.
const SQL_DDL_MAX: usize = 256 * 1024;
const SQL_DML_MAX: usize = 1024;

/// The transaction whose events are being read.
#[derive(Default, Clone)]
struct Transaction {
    gtid: Option<Gtid>,
    gtid_event: Option<u64>,
    commit_us: Option<u64>,
    start: u64,
    source_start: u64,
    maps: Vec<(usize, u64)>,
    maps_stale: bool,
    /// Statements whose end is not known yet, as JSON up to it.
    statements: Vec<String>,
    /// The offset of the last row event that counts, or an upper bound of it.
    last_rows: u64,
    undone: bool,
}

#[derive(Default)]
struct Span {
    start: u64,
    open: Option<String>,
    gtids: GtidSet,
    first_commit_us: Option<u64>,
    last_commit_us: Option<u64>,
    transactions: u64,
    touched: Vec<usize>,
    statements: Vec<String>,
    changes: Vec<Change>,
}

/// What the end of a transaction means beyond its events.
pub struct Ending {
    /// Length and digest of the events that the source sent, if other events are stored.
    pub sent: Option<(u64, u64)>,
    pub change: Change,
}

/// What the source sent for a transaction, compared with what is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sent {
    #[default]
    AsStored,
    /// Other bytes are stored. Length and digest of those that were sent.
    Otherwise(u64, u64),
    Unknown,
}

/// A transaction that has ended, with its place in the log and at the source.
#[derive(Default)]
struct Ended {
    start: u64,
    end: u64,
    gtid: Option<Gtid>,
    source: Place,
    sent: Sent,
}

pub struct Tracker {
    pub group: Group,
    pub executed: GtidSet,
    /// The source's position after the last event.
    pub source: Place,
    /// The source's position at the last transaction end.
    pub committed_source: Place,
    pub committed: u64,
    pub end: u64,
    pub transactions: u64,
    pub events: u64,
    pub last_commit_us: Option<u64>,
    /// INCIDENT events: each says that the source lost events.
    pub incidents: u64,
    /// Must be set before the last event of a transaction.
    pub ending: Option<Ending>,
    /// `(start, end]` of row events that the transaction has rolled back (ROLLBACK TO SAVEPOINT).
    pub taken_back: Option<(u64, u64)>,
    names: TableNames,
    /// Row events and bytes in the span, by the table's slot in `names`.
    counts: Vec<(u64, u64)>,
    doubts: Doubts,
    transaction: Transaction,
    ended: Ended,
    span: Span,
    reported: Place,
}

impl Tracker {
    pub fn new(offset: u64, executed: GtidSet, source: Place) -> Tracker {
        Tracker {
            group: Group::default(),
            executed,
            committed_source: source.clone(),
            reported: source.clone(),
            source,
            committed: offset,
            end: offset,
            transactions: 0,
            events: 0,
            last_commit_us: None,
            incidents: 0,
            ending: None,
            taken_back: None,
            names: TableNames::default(),
            counts: Vec::new(),
            doubts: Doubts::default(),
            transaction: Transaction::default(),
            ended: Ended::default(),
            span: Span { start: offset, ..Span::default() },
        }
    }

    /// Forgets what came before `start`, but not the state of the open transaction. Its rows before `start`
    /// may have been rolled back.
    pub fn forget_before(&mut self, start: u64) {
        self.transaction.undone = !self.group.is_idle();
        self.events = 0;
        self.end = start;
        self.span.statements.clear();
    }

    /// Takes an event at `offset` with `length` bytes. `body` is what is between header and checksum.
    #[inline]
    pub fn event(&mut self, header: &EventHeader, body: &[u8], length: usize, offset: u64) -> Result<()> {
        let base = offset + HEADER_SIZE as u64;
        self.events += 1;
        if self.group.is_idle() {
            self.begin(header, offset);
        }
        if header.kind == EventKind::TABLE_MAP {
            self.table_map(body, base, offset)?;
        } else if header.kind.is_rows() {
            self.rows(body, base, length)?;
            self.transaction.last_rows = offset;
        } else if header.kind.is_gtid() {
            let event = GtidEvent::parse(header, body, base)?;
            self.transaction.gtid_event = Some(offset);
            self.transaction.commit_us = event.commit_us();
            self.transaction.gtid = event.gtid;
        }
        let mut step = Step::default();
        self.end = offset + length as u64;
        self.group.step(header, body, base, self.end, &mut step)?;
        if header.end_position != 0 {
            self.source.advance(header.end_position);
        }
        if let Some(statement) = step.statement {
            self.incidents += u64::from(statement.kind == Some(EventKind::INCIDENT));
            match step.savepoint {
                Some(Savepoint::RolledBackTo(target)) => {
                    self.doubts.doubt(&statement, target, self.counts.len());
                }
                _ => self.statement(&statement, header, offset, step.ends, ""),
            }
        }
        match step.savepoint {
            None => {}
            Some(Savepoint::Set) => {
                let (begin, span) = (self.transaction.start, &self.span);
                self.doubts.save(self.end, begin, span.start, &span.touched, &self.counts);
            }
            Some(Savepoint::RolledBackTo(target)) => self.take_back(target.place),
        }
        if step.ends {
            if self.transaction.undone {
                self.report_doubts(header, offset);
            }
            self.finish(header, &step);
        }
        Ok(())
    }

    /// Begins with no names, if there are too many and the span needs none.
    fn forget_many_names(&mut self) {
        if self.names.is_full() && self.span.touched.is_empty() {
            self.names = TableNames::default();
            self.counts.clear();
        }
    }

    fn begin(&mut self, header: &EventHeader, offset: u64) {
        self.forget_many_names();
        let mut maps = std::mem::take(&mut self.transaction.maps);
        maps.clear();
        self.transaction = Transaction {
            start: offset,
            source_start: self.source.advanced(header.end_position).saturating_sub(header.size.into()),
            maps,
            ..Transaction::default()
        };
    }

    fn table_map(&mut self, body: &[u8], base: u64, offset: u64) -> Result<()> {
        let mut cursor = Cursor::new(body, base);
        let id = cursor.uint_le(6, "table id")?;
        cursor.skip(2, "table map flags")?;
        let database = cursor.take_u8_prefixed("database name")?;
        cursor.skip(1, "end of database name")?;
        let table = cursor.take_u8_prefixed("table name")?;
        let slot = self.names.slot(id, database, table);
        if slot == self.counts.len() {
            self.counts.push((0, 0));
        }
        let transaction = &mut self.transaction;
        if transaction.maps_stale {
            transaction.maps.clear();
            transaction.maps_stale = false;
        }
        transaction.maps.retain(|(known, _)| *known != slot);
        transaction.maps.push((slot, offset));
        Ok(())
    }

    #[inline]
    fn rows(&mut self, body: &[u8], base: u64, length: usize) -> Result<()> {
        let mut cursor = Cursor::new(body, base);
        let id = cursor.uint_le(6, "table id")?;
        let flags = cursor.u16("row event flags")?;
        if flags & 1 != 0 {
            self.transaction.maps_stale = true;
        }
        if is_dummy(id) && self.names.slot_of(id).is_none() {
            return Ok(());
        }
        self.count(id, length, base)
    }

    /// Counts rows of the table that was announced under an id.
    #[inline]
    fn count(&mut self, id: u64, length: usize, offset: u64) -> Result<()> {
        let Some(slot) = self.names.slot_of(id) else {
            return Err(DecodeError::new(
                format!("a row event names table {id}, which no table map announced"),
                offset,
            ));
        };
        let count = &mut self.counts[slot];
        if count.0 == 0 {
            self.span.touched.push(slot);
        }
        count.0 += 1;
        count.1 += length as u64;
        Ok(())
    }

    #[cold]
    fn statement(
        &mut self,
        statement: &Statement<'_>,
        header: &EventHeader,
        offset: u64,
        alone: bool,
        more: &str,
    ) {
        let dml = is_dml(statement.sql);
        let limit = if dml { SQL_DML_MAX } else { SQL_DDL_MAX };
        let status = Status::parse(statement.variables);
        let sql = status.text(&statement.sql[..statement.sql.len().min(limit)]);
        let mut text = format!(
            "{{\"offset\":{offset},\"end\":{},\"database\":{},\"sql\":{},\"timestamp\":{}",
            self.end,
            quoted(&String::from_utf8_lossy(statement.database)),
            quoted(&sql),
            header.timestamp
        );
        if statement.sql.len() > limit {
            text.push_str(",\"truncated\":true");
        }
        if let Some(kind) = statement.kind {
            let _ = write!(text, ",\"event\":{}", kind.0);
        }
        if let Some(mode) = status.sql_mode.filter(|_| statement.kind.is_none()) {
            let _ = write!(text, ",\"sql_mode\":{mode}");
        }
        if let Some(charset) = status.server_charset().filter(|_| statement.kind.is_none() && !dml) {
            let _ = write!(text, ",\"server_charset\":{}", quoted(charset));
        }
        if !is_definition(statement.sql) {
            if let Updated::Listed(names) = &status.updated {
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                let _ = write!(text, ",\"updates\":[{}]", names.join(","));
            }
            if dml && alone {
                text.push_str(",\"alone\":true");
            }
        }
        text.push_str(more);
        text.push('}');
        self.span.statements.push(text);
    }

    /// Readers can end only between transactions, so a doubt is recorded with the transaction's last event.
    #[cold]
    fn report_doubts(&mut self, header: &EventHeader, offset: u64) {
        for doubt in self.doubts.take() {
            let keys: Vec<&str> = doubt.tables.iter().map(|slot| self.names.key(*slot)).collect();
            let more = format!(",\"tables\":[{}]", keys.join(","));
            let (database, sql, kind) = (&*doubt.database, &*doubt.sql, Some(EventKind::QUERY));
            let statement = Statement { database, sql, kind, variables: b"" };
            self.statement(&statement, header, offset, false, &more);
        }
    }

    #[cold]
    fn take_back(&mut self, since: u64) {
        self.doubts.take_back(since);
        let transaction = &mut self.transaction;
        let start = since.max(transaction.start);
        transaction.undone = true;
        if transaction.last_rows >= start {
            transaction.last_rows = start.saturating_sub(1);
            self.taken_back = Some((start, self.end));
        }
    }

    fn note_committed(&mut self) {
        self.committed = self.end;
        self.committed_source.position = self.source.position;
        if self.committed_source.file != self.source.file {
            self.committed_source.file.clone_from(&self.source.file);
        }
    }

    fn finish(&mut self, header: &EventHeader, step: &Step<'_>) {
        self.note_committed();
        if step.uncounted {
            return;
        }
        let ending = self.ending.take();
        self.transaction.commit_us.get_or_insert(u64::from(header.timestamp) * 1_000_000);
        self.commit(match ending.as_ref().and_then(|ending| ending.sent) {
            Some((length, digest)) => Sent::Otherwise(length, digest),
            None if step.rewritten || self.transaction.undone => Sent::Unknown,
            None => Sent::AsStored,
        });
        if let Some(ending) = ending {
            self.changed(ending.change);
        }
    }

    /// Counts the transaction, which has ended.
    fn commit(&mut self, sent: Sent) {
        let commit_us = self.transaction.commit_us.unwrap_or(0);
        self.span.first_commit_us.get_or_insert(commit_us);
        self.span.last_commit_us = Some(commit_us);
        self.last_commit_us = Some(commit_us);
        self.span.transactions += 1;
        self.transactions += 1;
        let ended = &mut self.ended;
        (ended.start, ended.end) = (self.transaction.start, self.end);
        ended.source.position = self.transaction.source_start;
        if ended.source.file != self.source.file {
            ended.source.file.clone_from(&self.source.file);
        }
        ended.sent = sent;
        ended.gtid = self.transaction.gtid.take();
        if let Some(gtid) = &ended.gtid {
            self.executed.add(gtid);
            self.span.gtids.add(gtid);
        }
    }

    /// Records a change of the prepared transactions. One that was prepared and ended in the same span is not
    /// in the span's entry.
    fn changed(&mut self, change: Change) {
        let changes = &mut self.span.changes;
        if let Change::Ended(ended) = &change {
            let same = |known: &Change| matches!(known, Change::Prepared(prepared) if prepared.xid == *ended);
            if let Some(at) = changes.iter().rposition(same) {
                changes.remove(at);
                return;
            }
        }
        changes.push(change);
    }

    /// Called when the source has advanced without events that are stored (rotate, heartbeat). It counts only
    /// between transactions.
    pub fn moved(&mut self, place: &Place) {
        if self.source.is_before(place) {
            self.source = place.clone();
        }
        if self.group.is_idle() && self.committed_source.is_before(&self.source) {
            self.committed_source = self.source.clone();
        }
    }

    /// Counts bytes of the log that are not an event of the source (a segment's head).
    pub fn padding(&mut self, length: u64) {
        self.end += length;
        self.committed = self.end;
    }

    pub fn span_bytes(&self) -> u64 {
        self.end - self.span.start
    }

    /// Ends the span and returns its entry. None: nothing has changed.
    pub fn cut(&mut self, extra: &str) -> Option<String> {
        let moved = self.reported != self.committed_source;
        if self.end == self.span.start && !moved {
            return None;
        }
        let entry = self.entry(extra);
        self.reported.clone_from(&self.committed_source);
        self.doubts.begin_span();
        for slot in &self.span.touched {
            self.counts[*slot] = (0, 0);
        }
        self.span = Span { start: self.end, open: self.open(), ..Span::default() };
        Some(entry)
    }
}

fn is_dml(sql: &[u8]) -> bool {
    begins(sql, &["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"])
}

/// Whether the statement is DDL. It names the tables that it concerns, so the event's list of databases is
/// not stored.
fn is_definition(sql: &[u8]) -> bool {
    begins(sql, &["CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "GRANT", "REVOKE", "SET", "FLUSH"])
        || begins(sql, &["ANALYZE TABLE", "OPTIMIZE", "REPAIR"])
}

fn begins(sql: &[u8], words: &[&str]) -> bool {
    words
        .iter()
        .any(|word| sql.len() >= word.len() && sql[..word.len()].eq_ignore_ascii_case(word.as_bytes()))
}
