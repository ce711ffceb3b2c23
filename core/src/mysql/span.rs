//! Computes index entries: collects, event by event, what a span of the log contains.
//!
//! The receiver uses `Tracker` for events as they arrive. Readers use it for a part of a closed segment's
//! entry, by reading the part's events again (`rescan.rs`).

mod doubts;
mod entry;

use std::fmt::Write as _;

use crate::cursor::Cursor;
use crate::entries::{Entries, Sent, STATEMENT_MAX};
use crate::error::Result;
use crate::json_text::quoted;
use crate::mysql::event::{EventHeader, EventKind, HEADER_SIZE};
use crate::mysql::group::{Group, Step};
use crate::mysql::gtid::{Gtid, GtidSet};
use crate::mysql::gtid_event::GtidEvent;
use crate::mysql::place::Place;
use crate::mysql::query::Statement;
use crate::mysql::row_event::is_dummy;
use crate::mysql::savepoints::Savepoint;
use crate::mysql::status::{Status, Updated};
use crate::mysql::xa::Change;

use doubts::Doubts;

impl Place {
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

/// Most bytes of a statement that only changes rows: see `STATEMENT_MAX`.
const DML_MAX: usize = 1024;

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
    /// The offset of the last row event that counts, or an upper bound of it.
    last_rows: u64,
    undone: bool,
}

/// What the end of a transaction means beyond its events.
pub struct Ending {
    /// Length and digest of the events that the source sent, if other events are stored.
    pub sent: Option<(u64, u64)>,
    pub change: Change,
}

pub struct Tracker {
    pub log: Entries<GtidSet, Place>,
    pub group: Group,
    pub events: u64,
    /// INCIDENT events: each says that the source lost events.
    pub incidents: u64,
    /// Must be set before the last event of a transaction.
    pub ending: Option<Ending>,
    /// `(start, end]` of row events that the transaction has rolled back (ROLLBACK TO SAVEPOINT).
    pub taken_back: Option<(u64, u64)>,
    doubts: Doubts,
    transaction: Transaction,
    /// What the span's transactions did to the set of prepared ones.
    changes: Vec<Change>,
}

impl Tracker {
    pub fn new(offset: u64, executed: GtidSet, source: Place) -> Tracker {
        Tracker {
            log: Entries::new(offset, executed, source),
            group: Group::default(),
            events: 0,
            incidents: 0,
            ending: None,
            taken_back: None,
            doubts: Doubts::default(),
            transaction: Transaction::default(),
            changes: Vec::new(),
        }
    }

    /// Forgets what came before `start`, but not the state of the open transaction. Its rows before `start`
    /// may have been rolled back.
    pub fn forget_before(&mut self, start: u64) {
        self.transaction.undone = !self.group.is_idle();
        self.events = 0;
        self.log.end = start;
        self.log.span.statements.clear();
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
        self.log.end = offset + length as u64;
        self.group.step(header, body, base, self.log.end, &mut step)?;
        if header.end_position != 0 {
            self.log.source.advance(header.end_position);
        }
        if let Some(statement) = step.statement {
            self.incidents += u64::from(statement.kind == Some(EventKind::INCIDENT));
            match step.savepoint {
                Some(Savepoint::RolledBackTo(target)) => {
                    self.doubts.doubt(&statement, target, self.log.counts.len());
                }
                _ => self.statement(&statement, header, offset, step.ends, ""),
            }
        }
        match step.savepoint {
            None => {}
            Some(Savepoint::Set) => {
                let (begin, log, span) = (self.transaction.start, &self.log, &self.log.span);
                self.doubts.save(log.end, begin, span.start, &span.touched, &log.counts);
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

    fn begin(&mut self, header: &EventHeader, offset: u64) {
        self.log.forget_many_names();
        let mut maps = std::mem::take(&mut self.transaction.maps);
        maps.clear();
        self.transaction = Transaction {
            start: offset,
            source_start: self.log.source.advanced(header.end_position).saturating_sub(header.size.into()),
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
        let slot = self.log.announce(id, database, table);
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
        if is_dummy(id) && self.log.names.slot_of(id).is_none() {
            return Ok(());
        }
        self.log.count(id, length, base)
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
        let limit = if dml { DML_MAX } else { STATEMENT_MAX };
        let status = Status::parse(statement.variables);
        let sql = status.text(&statement.sql[..statement.sql.len().min(limit)]);
        let mut text = format!(
            "{{\"offset\":{offset},\"end\":{},\"database\":{},\"sql\":{},\"timestamp\":{}",
            self.log.end,
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
        self.log.span.statements.push(text);
    }

    /// Readers can end only between transactions, so a doubt is recorded with the transaction's last event.
    #[cold]
    fn report_doubts(&mut self, header: &EventHeader, offset: u64) {
        for doubt in self.doubts.take() {
            let keys: Vec<&str> = doubt.tables.iter().map(|slot| self.log.names.key(*slot)).collect();
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
            self.taken_back = Some((start, self.log.end));
        }
    }

    fn finish(&mut self, header: &EventHeader, step: &Step<'_>) {
        self.log.note_committed();
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
        let source = &mut self.log.ended.source;
        source.position = self.transaction.source_start;
        if source.file != self.log.source.file {
            source.file.clone_from(&self.log.source.file);
        }
        self.log.commit(self.transaction.start, self.transaction.gtid.take(), commit_us, sent);
    }

    /// Records a change of the prepared transactions. One that was prepared and ended in the same span is not
    /// in the span's entry.
    fn changed(&mut self, change: Change) {
        let changes = &mut self.changes;
        if let Change::Ended(ended) = &change {
            let same = |known: &Change| matches!(known, Change::Prepared(prepared) if prepared.xid == *ended);
            if let Some(at) = changes.iter().rposition(same) {
                changes.remove(at);
                return;
            }
        }
        changes.push(change);
    }

    /// Called when the source has advanced without events that are stored (rotate, heartbeat).
    pub fn moved(&mut self, place: &Place) {
        self.log.moved(place, self.group.is_idle());
    }

    /// Ends the span and returns its entry. None: nothing has changed.
    pub fn cut(&mut self, extra: &str) -> Option<String> {
        if !self.log.has_news() {
            return None;
        }
        let entry = self.entry(extra);
        self.doubts.begin_span();
        self.changes.clear();
        self.log.begin_span(self.open());
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
