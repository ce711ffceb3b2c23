//! What must be known of a transaction before its first row.

use std::collections::HashMap;
use std::sync::Arc;

use super::events::{each, Seen};
use super::Open;
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::mysql::event::{Event, EventHeader, EventKind, FormatDescription};
use crate::mysql::group::{Group, Step};
use crate::mysql::gtid_event::GtidEvent;
use crate::mysql::log_file::LogFile;
use crate::mysql::query::Statement;
use crate::mysql::row_event::is_dummy;
use crate::mysql::savepoints::{Savepoint, Target};
use crate::mysql::source_names::{complete_places, whole_position, SourceNames};
use crate::mysql::status::Status;
use crate::mysql::table_map::TableMapHead;
use crate::mysql::xa::{self, XaStatement};
use crate::parts::OpenPart;
use crate::row_log::{Definition, Item, LoggedRows, Take};
use crate::rows::RowsEvent;
use crate::schema::TableSchema;
use crate::table_map::TableMap;
use crate::transaction::{EventPlace, LoggedStatement, Part, Selection, Survey, Transaction, Walked};

/// The state of one survey.
struct Surveyor<'a> {
    group: Group,
    found: Survey,
    began: bool,
    prepared: bool,
    /// Each savepoint: the number of its event, and the last row event before it.
    saved: Vec<(u64, Option<u64>)>,
    /// ROLLBACK TOs that may mean one of several savepoints, each with the number of the first one.
    doubts: Vec<(u64, LoggedStatement)>,
    /// Whether a table is wanted, by table id.
    wanted: HashMap<u64, bool>,
    selection: &'a Selection,
    format: &'a FormatDescription,
    first: Option<(u64, EventHeader)>,
    /// Events of the file before the transaction.
    before: u64,
}

/// Events of a file that belong to no transaction.
fn is_outside(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::START_V3
            | EventKind::STOP
            | EventKind::ROTATE
            | EventKind::SLAVE
            | EventKind::FORMAT_DESCRIPTION
            | EventKind::PREVIOUS_GTIDS
            | EventKind::HEARTBEAT
            | EventKind::HEARTBEAT_V2
            | EventKind::MARIADB_GTID_LIST
            | EventKind::MARIADB_BINLOG_CHECKPOINT
    )
}

impl OpenPart for Open {
    fn open(part: Arc<Part>) -> Result<Self> {
        let mut file = LogFile::open(&part.file, part.base)?;
        let end = part.end()?;
        file.read_to(end);
        let (position, names) = (part.start.max(4), SourceNames::new(part.known.clone()));
        Ok(Self { format: file.format().clone(), file, position, end, names, part })
    }

    fn part(&self) -> &Part {
        &self.part
    }

    fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>> {
        survey.walk(&mut self.file, &self.format, from, take)
    }

    fn survey(&mut self, selection: &Selection) -> Result<Option<Survey>> {
        let (start, end) = (self.position, self.end);
        let mut surveyor = Surveyor::new(self.part.clone(), start, selection, &self.format);
        let found = each(&mut self.file, (start, end), 0, true, &mut |seen| surveyor.take(seen))?;
        let Some(end) = found else {
            let (open, began) = (!surveyor.group.is_idle(), surveyor.found.start);
            self.position = self.end;
            return match open {
                true => Err(DecodeError::new("the log ends inside a transaction", self.part.base + began)),
                false => Ok(None),
            };
        };
        self.position = end;
        let mut survey = surveyor.finish(end);
        if let Some((position, header)) = survey.1 {
            let low = header.end_position.wrapping_sub(header.size);
            let (file, at) = self.names.place(self.part.base + position, low);
            survey.0.transaction.file.push_str(file);
            survey.0.transaction.position = at;
            complete_places(&mut survey.0.transaction);
        }
        Ok(Some(survey.0))
    }
}

impl<'a> Surveyor<'a> {
    fn new(part: Arc<Part>, start: u64, selection: &'a Selection, format: &'a FormatDescription) -> Self {
        let found = Survey::plain(Transaction::default(), Vec::new(), None, part, (start, start));
        Self {
            group: Group::default(),
            found,
            began: false,
            prepared: false,
            saved: Vec::new(),
            doubts: Vec::new(),
            wanted: HashMap::new(),
            selection,
            format,
            first: None,
            before: 0,
        }
    }

    /// Returns whether the transaction goes on.
    fn take(&mut self, seen: &Seen<'_>) -> Result<bool> {
        let (header, body, base) = (&seen.event.header, seen.event.body, seen.event.cursor().offset());
        if self.group.is_idle() && is_outside(header.kind) {
            return Ok(!self.began);
        }
        if !self.began {
            self.began = true;
            self.found.start = seen.position;
            self.found.transaction.start = seen.event.offset;
            self.first = Some((seen.position, *header));
            self.before = seen.number - 1;
        }
        // Numbers count from the transaction's first event, as in the walk.
        let number = seen.number - self.before;
        self.note_place(seen);
        let mut step = Step::default();
        self.group.step(header, body, base, number, &mut step)?;
        self.note(seen, base, number)?;
        if let Some(statement) = step.statement {
            let logged = logged(&statement, seen);
            match step.savepoint {
                Some(Savepoint::RolledBackTo(target)) if self.has_rows_between(target) => {
                    self.doubts.push((target.first, logged));
                }
                Some(_) => {}
                None if statement.kind == Some(EventKind::XA_PREPARE) => {} // `commits` has it
                None => self.found.statements.push(logged),
            }
        }
        match step.savepoint {
            None => {}
            Some(Savepoint::Set) => self.saved.push((number, self.found.last_rows)),
            Some(Savepoint::RolledBackTo(target)) => self.take_back(target.place, number),
        }
        if step.ends {
            self.prepared = step.prepared;
            if self.found.transaction.commit_us == 0 {
                self.found.transaction.commit_us = u64::from(header.timestamp) * 1_000_000;
            }
            // An event that may be ignored, outside of transactions, is nothing.
            if step.uncounted {
                self.began = false;
                return Ok(true);
            }
        }
        Ok(!step.ends)
    }

    /// Positions are completed when the transaction's own is known.
    fn note_place(&mut self, seen: &Seen<'_>) {
        let header = &seen.event.header;
        let place = EventPlace {
            position: match seen.packed || header.end_position == 0 {
                true => 0,
                false => header.end_position.wrapping_sub(header.size).into(),
            },
            bytes: header.size,
            timestamp: header.timestamp,
            server_id: header.server_id,
        };
        let transaction = &mut self.found.transaction;
        let begun = transaction.begin_event.bytes != 0;
        if !begun && (header.kind == EventKind::QUERY || header.kind == EventKind::MARIADB_GTID) {
            transaction.begin_event = place;
        }
        transaction.end_event = place;
    }

    fn note(&mut self, seen: &Seen<'_>, base: u64, number: u64) -> Result<()> {
        let (header, body) = (&seen.event.header, seen.event.body);
        match header.kind {
            kind if kind.is_gtid() => {
                let gtid = GtidEvent::parse(header, body, base)?;
                let transaction = &mut self.found.transaction;
                let commit_us = gtid.commit_us();
                (transaction.commit_us, transaction.commit_is_exact) =
                    (commit_us.unwrap_or(0), commit_us.is_some());
                transaction.gtid = gtid.gtid.map(|gtid| gtid.to_string());
            }
            EventKind::TABLE_MAP => {
                let head = TableMapHead::parse(&seen.event, self.format)?;
                self.wanted.insert(head.table_id, self.selection.has(head.database, head.table));
            }
            kind if kind.is_rows() => {
                let size = self.format.table_id_size(kind);
                let table_id = Cursor::new(body, base).uint_le(size, "table id")?;
                match self.wanted.get(&table_id) {
                    Some(true) => self.found.last_rows = Some(number),
                    Some(false) => {}
                    None if is_dummy(table_id) => {}
                    None => {
                        let reason =
                            format!("a row event of table id {table_id}, for which there was no table map");
                        return Err(DecodeError::new(reason, seen.event.offset));
                    }
                }
            }
            EventKind::QUERY => self.query(body, base)?,
            EventKind::XID => self.found.transaction.xid = Some(Cursor::new(body, base).u64("XID")?),
            EventKind::XA_PREPARE => {
                let one_phase = Cursor::new(body, base).u8("XA one phase")? == 1;
                self.found.prepares = (!one_phase).then(|| xa::xid_of_event(body, base)).transpose()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn query(&mut self, body: &[u8], base: u64) -> Result<()> {
        let thread_id = Cursor::new(body, base).u32("thread id")?;
        self.found.transaction.thread_id.get_or_insert(thread_id);
        let sql = crate::mysql::query::query(body, base)?.1;
        match xa::statement(sql) {
            Some((XaStatement::Commit, xid)) => self.found.commits = Some(xid),
            Some((XaStatement::Rollback, xid)) => self.found.rolls_back = Some(xid),
            _ => {}
        }
        Ok(())
    }

    /// Whether a wanted table has rows between the savepoints that a ROLLBACK TO may mean.
    fn has_rows_between(&self, target: Target) -> bool {
        let last_rows = |place| self.saved.iter().find(|(set, _)| *set == place).and_then(|saved| saved.1);
        last_rows(target.first) != last_rows(target.place)
    }

    /// Takes back the rows since the event with a number; 0: all of them.
    fn take_back(&mut self, since: u64, number: u64) {
        self.saved.retain(|(set, _)| *set <= since);
        self.doubts.retain(|(first, _)| *first < since);
        self.found.taken_back.push((since, number));
        self.found.last_rows = self.saved.last().and_then(|(_, last_rows)| *last_rows);
    }

    fn finish(mut self, end: u64) -> (Survey, Option<(u64, EventHeader)>) {
        self.found.end = end;
        self.found.statements.extend(self.doubts.into_iter().map(|(_, doubt)| doubt));
        self.found.transaction.end = self.found.part.base + end;
        if !self.prepared {
            self.found.prepares = None;
        }
        (self.found, self.first)
    }
}

fn logged(statement: &Statement<'_>, seen: &Seen<'_>) -> LoggedStatement {
    let (header, status) = (&seen.event.header, Status::parse(statement.variables));
    LoggedStatement {
        database: String::from_utf8_lossy(statement.database).into_owned(),
        sql: status.text(statement.sql).into_owned(),
        event: statement.kind.map(|kind| kind.0),
        timestamp: header.timestamp,
        server_id: header.server_id,
        sql_mode: status.sql_mode,
        server_charset: status.server_charset(),
        position: u64::from(header.end_position.wrapping_sub(header.size)),
        end_position: header.end_position.into(),
    }
}

impl Survey {
    /// Whether the row event with this number counts.
    fn counts(&self, number: u64) -> bool {
        !self.taken_back.iter().any(|(first, last)| (*first..*last).contains(&number))
    }

    /// Gives events from a place on, until `take` returns false. Returns the place to go on from; None: there
    /// are no more rows.
    fn walk(
        &self,
        file: &mut LogFile,
        format: &FormatDescription,
        from: Walked,
        take: &mut Take<'_>,
    ) -> Result<Option<Walked>> {
        let Some(last) = self.last_rows else { return Ok(None) };
        let start = self.start.max(from.position);
        let (mut more, mut number) = (true, from.number);
        let stopped = each(file, (start, self.end), from.number, false, &mut |seen| {
            let (event, this) = (&seen.event, seen.number);
            more &= match event.header.kind {
                EventKind::TABLE_MAP => take(this, &Item::Definition(&LoggedMap { event, format }))?,
                // One byte with a length, which is cut to that byte, is before the text.
                EventKind::ROWS_QUERY => take(this, &Item::Query(event.body.get(1..).unwrap_or_default()))?,
                EventKind::MARIADB_ANNOTATE_ROWS => take(this, &Item::Query(event.body))?,
                kind if kind.is_rows() && self.counts(seen.number) => match self.rows(seen, format)? {
                    Some(rows) => take(this, &Item::Rows(rows))?,
                    None => true,
                },
                _ => true,
            };
            number = this;
            Ok(more && this < last)
        })?;
        let left = stopped.filter(|_| number < last);
        Ok(left.map(|position| Walked { position, number }))
    }

    /// The rows of an event; None: it has none, and only ends a statement.
    fn rows<'a>(&self, seen: &'a Seen<'a>, format: &FormatDescription) -> Result<Option<LoggedRows<'a>>> {
        let event = &seen.event;
        let rows = RowsEvent::parse(event, format)?;
        if rows.images.is_empty() && is_dummy(rows.table_id) {
            return Ok(None);
        }
        let (header, transaction) = (&event.header, &self.transaction);
        let position = match seen.packed || header.end_position == 0 {
            // As far behind the transaction's begin as in this file.
            true => transaction.position + event.offset.saturating_sub(transaction.start),
            false => whole_position(transaction.position, header.end_position.wrapping_sub(header.size)),
        };
        Ok(Some(LoggedRows {
            rows,
            bytes: event.body,
            number: seen.number,
            offset: event.offset,
            packed: seen.packed,
            position,
            size: header.size,
            timestamp: header.timestamp,
            server_id: header.server_id,
            json: format.json_style(),
        }))
    }
}

/// A table map.
struct LoggedMap<'a> {
    event: &'a Event<'a>,
    format: &'a FormatDescription,
}

impl Definition for LoggedMap<'_> {
    fn id(&self) -> Result<u64> {
        self.event.cursor().uint_le(self.format.table_id_size(EventKind::TABLE_MAP), "table id")
    }

    fn bytes(&self) -> &[u8] {
        self.event.body
    }

    fn names(&self) -> Result<(&[u8], &[u8])> {
        TableMapHead::parse(self.event, self.format).map(|head| (head.database, head.table))
    }

    fn table(&self) -> Result<(TableMap, Option<TableSchema>)> {
        Ok((TableMap::parse(self.event, self.format)?, None))
    }

    fn offset(&self) -> u64 {
        self.event.offset
    }
}
