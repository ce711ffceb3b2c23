//! The events of a binlog file.

use super::changes::{Changes, Reader, Words};
use super::file::{FileEvents, RawEvent};
use super::known_table::complete;
use super::statement::Statement;
use super::summary::{Domain, Summary};
use crate::error::{DecodeError, Result};
use crate::mysql::checksum::Checksum;
use crate::mysql::control::{control, Control, XaStatement};
use crate::mysql::event::{Event, EventHeader, EventKind};
use crate::mysql::gtid_event::{GtidEvent, MARIADB_STANDALONE};
use crate::mysql::mariadb;
use crate::mysql::payload::Payload;
use crate::rows::RowsEvent;
use crate::table_map::TableMap;

pub const WORDS: Words = Words { transaction: "gtid", transactions: "gtids" };

pub struct Binlog {
    file: FileEvents,
    raw: RawEvent,
    payload: Option<(Payload, u64)>,
    transaction: Transaction,
}

/// The transaction that is being read.
#[derive(Default)]
struct Transaction {
    open: bool,
    gtid_event: Option<GtidEvent>,
    /// MariaDB's GTID.
    domain: Option<Domain>,
}

impl Reader for Binlog {
    fn executed(&self, summary: &Summary) -> String {
        summary.gtids()
    }

    /// Reads one event of the file, or of the payload that is being unpacked.
    fn step(&mut self, changes: &mut Changes) -> Result<bool> {
        let mut raw = std::mem::replace(&mut self.raw, RawEvent::empty());
        let result = self.read_event(&mut raw, changes);
        self.raw = raw;
        result
    }
}

impl Binlog {
    pub fn new(file: FileEvents) -> Self {
        Self { file, raw: RawEvent::empty(), payload: None, transaction: Transaction::default() }
    }

    fn read_event(&mut self, raw: &mut RawEvent, changes: &mut Changes) -> Result<bool> {
        if let Some((payload, offset)) = &mut self.payload {
            let offset = *offset;
            if payload.next_into(&mut raw.bytes)? {
                raw.header = EventHeader::parse(&raw.bytes, offset)?;
                (raw.offset, raw.checksum) = (offset, Checksum::None);
                self.take_event(&raw.event()?, changes)?;
                return Ok(true);
            }
            self.payload = None;
        }
        if !self.file.next_into(raw)? {
            return Ok(false);
        }
        let event = raw.event()?;
        self.take_event(&event, changes)?;
        Ok(true)
    }

    fn take_event(&mut self, event: &Event<'_>, changes: &mut Changes) -> Result<()> {
        let kind = event.header.kind;
        if changes.summary.is_empty() && kind != EventKind::FORMAT_DESCRIPTION {
            changes.summary.problem(NO_FORMAT, event.offset);
        }
        changes.summary.count_event(kind);
        changes.packed = mariadb::is_compressed(kind.0);
        if changes.packed {
            let plain = mariadb::unpack_event(event.raw, event.body, Checksum::None, event.offset)?;
            return self.take_plain(&Event::parse(&plain, event.offset, Checksum::None)?, changes);
        }
        changes.packed = self.payload.is_some();
        self.take_plain(event, changes)
    }

    fn take_plain(&mut self, event: &Event<'_>, changes: &mut Changes) -> Result<()> {
        match event.header.kind {
            EventKind::GTID
            | EventKind::ANONYMOUS_GTID
            | EventKind::GTID_TAGGED
            | EventKind::MARIADB_GTID => {
                self.take_gtid(event, changes)?;
            }
            EventKind::QUERY => {
                let statement = Statement::parse(event, self.file.format())?;
                self.take_statement(&statement, event, changes);
            }
            EventKind::XID | EventKind::XA_PREPARE => self.end_transaction(event, changes),
            EventKind::TABLE_MAP => self.take_table_map(event, changes)?,
            EventKind::TRANSACTION_PAYLOAD => {
                let offset = event.offset;
                self.payload = Some((Payload::open(event.body, event.header.end_position, offset)?, offset));
            }
            EventKind::PRE_GA_WRITE_ROWS | EventKind::PRE_GA_UPDATE_ROWS | EventKind::PRE_GA_DELETE_ROWS => {
                changes
                    .summary
                    .note("row events of MySQL before 5.1.16 (types 20 to 22) are counted, not decoded");
            }
            EventKind::INCIDENT => changes.summary.problem(LOST_EVENTS, event.offset),
            EventKind::MARIADB_START_ENCRYPTION => {
                return Err(DecodeError::new(
                    "the rest of the file is encrypted (MariaDB); it cannot be read",
                    event.offset,
                ));
            }
            kind if kind.rows().is_some() => self.take_rows(event, changes)?,
            _ => {}
        }
        Ok(())
    }

    fn take_gtid(&mut self, event: &Event<'_>, changes: &mut Changes) -> Result<()> {
        let (mut transaction, mut id) = (Transaction::default(), None);
        let (body, base) = (event.body, event.cursor().offset());
        let parsed = match event.header.kind {
            EventKind::MARIADB_GTID => {
                let mut cursor = event.cursor();
                let sequence = cursor.u64("GTID sequence")?;
                let domain = cursor.u32("GTID domain")?;
                // No BEGIN follows: without this mark the transaction goes on to XID, COMMIT or XA PREPARE.
                transaction.open = cursor.u8("GTID flags")? & MARIADB_STANDALONE == 0;
                let gtid = Domain { domain, server_id: event.header.server_id, sequence };
                id = Some(gtid.to_string());
                transaction.domain = Some(gtid);
                GtidEvent::default()
            }
            EventKind::GTID_TAGGED => GtidEvent::parse_tagged(body, base)?,
            kind => GtidEvent::parse_plain(body, base, kind == EventKind::ANONYMOUS_GTID)?,
        };
        changes.transaction = id.or(parsed.gtid.as_ref().map(ToString::to_string));
        transaction.gtid_event = Some(parsed);
        self.transaction = transaction;
        Ok(())
    }

    fn take_statement(&mut self, statement: &Statement, event: &Event<'_>, changes: &mut Changes) {
        match control(statement.sql.as_bytes()) {
            Control::Begin | Control::CreatesWithRows | Control::Xa(XaStatement::Start) => {
                self.transaction.open = true;
            }
            Control::Commit => self.end_transaction(event, changes),
            Control::Rollback => {
                changes.summary.note(TAKEN_BACK);
                self.end_transaction(event, changes);
            }
            Control::RollbackTo(_) => changes.summary.note(TAKEN_BACK),
            Control::Xa(XaStatement::Commit | XaStatement::Rollback) => self.end_transaction(event, changes),
            Control::Savepoint(_) | Control::Release | Control::Xa(XaStatement::End) => {}
            Control::Other if self.transaction.open => {}
            Control::Other => self.end_transaction(event, changes),
        }
    }

    fn end_transaction(&mut self, event: &Event<'_>, changes: &mut Changes) {
        let transaction = std::mem::take(&mut self.transaction);
        changes.transaction = None;
        let commit_us = self.commit_us(transaction.gtid_event.as_ref(), event);
        let gtid = transaction.gtid_event.and_then(|parsed| parsed.gtid);
        changes.summary.count_transaction(gtid.as_ref(), transaction.domain, commit_us);
    }

    /// The commit time in the GTID event (8.0 and later), else when the statement began.
    fn commit_us(&self, gtid: Option<&GtidEvent>, event: &Event<'_>) -> u64 {
        let of_commit = gtid.and_then(GtidEvent::commit_us);
        of_commit.unwrap_or(u64::from(event.header.timestamp) * 1_000_000)
    }

    fn take_table_map(&mut self, event: &Event<'_>, changes: &mut Changes) -> Result<()> {
        let mut map = TableMap::parse(event, self.file.format())?;
        let name = map.name();
        if let Some(schema) = changes.options.schemas.iter().find(|schema| schema.name() == name) {
            complete(&mut map, schema);
        }
        changes.define(map);
        Ok(())
    }

    fn take_rows(&mut self, event: &Event<'_>, changes: &mut Changes) -> Result<()> {
        changes.json_style = self.file.format().json_style();
        let mut rows = RowsEvent::parse(event, self.file.format())?;
        // Some servers end a statement with an event of no table and no rows.
        if rows.images.is_empty() && !changes.tables.contains_key(&rows.table_id) {
            return Ok(());
        }
        let Some(table) = changes.tables.remove(&rows.table_id) else {
            return Err(DecodeError::new(
                format!(
                    "a row event names table {}, for which there is no table map before it",
                    rows.table_id
                ),
                event.offset,
            ));
        };
        let place = (event.offset, self.commit_us(self.transaction.gtid_event.as_ref(), event));
        changes.take_rows(place, &mut rows, table)?;
        if rows.flags & RowsEvent::FLAG_STATEMENT_END != 0 && !self.transaction.open {
            // Tables without transactions, before there was a BEGIN around them.
            self.end_transaction(event, changes);
        }
        Ok(())
    }
}

const LOST_EVENTS: &str = "the source lost events here (INCIDENT): rows may have changed that are in no log";
const NO_FORMAT: &str =
    "the file does not begin with a format description, so that it is not a whole binlog \
                         file; it was read as one of MySQL 5.1 to 5.5";
const TAKEN_BACK: &str =
    "changes that a ROLLBACK or ROLLBACK TO took back are in the file, and are counted and \
                          listed like all others";
