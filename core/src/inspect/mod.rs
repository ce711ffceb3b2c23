//! `penstock inspect`: reads one binlog file, without a server, a catalog or a relay log.
//!
//! It uses only what the file itself contains. If it cannot continue (a truncated or damaged file, row events
//! of an unknown type), everything before has been returned, and the error says where it stopped.

mod file;
mod known_table;
mod lines;
mod names;
mod records;
mod statement;
mod summary;
mod timestamp;
mod value;

use std::collections::{HashMap, VecDeque};

use self::file::{FileEvents, RawEvent};
use self::known_table::{complete, KnownTable};
use self::lines::{end_of_line, line};
use self::records::Records;
pub use self::statement::{read_statement, Statement};
use self::summary::{Domain, Summary};
use self::timestamp::iso;
use self::value::{write_json_string, JsonRow};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::mysql::checksum::Checksum;
use crate::mysql::control::{control, Control, XaStatement};
use crate::mysql::event::{Event, EventHeader, EventKind};
use crate::mysql::gtid::Gtid;
use crate::mysql::gtid_event::{GtidEvent, MARIADB_STANDALONE};
use crate::mysql::mariadb;
use crate::mysql::payload::Payload;
use crate::records::Record;
use crate::rows::{skip_image, walk_image, Present, RowsEvent, RowsKind};
use crate::schema::TableSchema;
use crate::segment_file::SegmentFile;
use crate::table_map::TableMap;
use crate::typed_rows;

/// Table maps that are remembered. Servers never have so many tables open, so more of them are a sign of
/// damage.
const MAPS_MAX: usize = 100_000;

pub struct Options {
    /// Offset of the file's first byte: 0, or the base of a relay-log segment.
    pub base: u64,
    /// Position in the file where reading ends. None: at the file's end.
    pub end: Option<u64>,
    /// Column names (and signedness, labels) for tables whose maps do not have them.
    pub schemas: Vec<TableSchema>,
    /// Only these tables (`database.table`). Empty: all.
    pub tables: Vec<String>,
    /// Only count rows, and make no lines.
    pub count_only: bool,
}

pub struct Inspector {
    path: String,
    file_name: String,
    file: Option<FileEvents>,
    /// Of a file of the format `rows`.
    records: Option<Records>,
    options: Options,
    raw: RawEvent,
    payload: Option<(Payload, u64)>,
    /// The event is from a compressed one, whose place counts.
    packed: bool,
    tables: HashMap<u64, KnownTable>,
    lines: VecDeque<String>,
    transaction: Transaction,
    summary: Summary,
    json_style: Style,
    failed: Option<DecodeError>,
}

/// The transaction that is being read.
#[derive(Default)]
struct Transaction {
    open: bool,
    gtid: Option<String>,
    gtid_event: Option<GtidEvent>,
    /// MariaDB's GTID.
    domain: Option<Domain>,
}

impl Inspector {
    pub fn open(file: &SegmentFile, options: Options) -> Self {
        Self::over(file.name(), FileEvents::open(file, options.end).map(Some), options)
    }

    /// An inspector of a segment of the format `rows`.
    pub fn of_records(file: &SegmentFile, options: Options) -> Self {
        let opened = Records::open(file, options.end);
        let mut inspector = Self::over(file.name(), Ok(None), options);
        match opened.map_err(|error| error.in_file(file.name())) {
            Ok(records) => inspector.records = Some(records),
            Err(error) => inspector.failed = Some(error),
        }
        inspector
    }

    /// An inspector of bytes in memory.
    pub fn of_bytes(bytes: Vec<u8>, options: Options) -> Self {
        Self::over("", FileEvents::of_bytes(bytes).map(Some), options)
    }

    fn over(path: &str, opened: Result<Option<FileEvents>>, options: Options) -> Self {
        let (file, failed) = match opened.map_err(|error| error.in_file(path)) {
            Ok(file) => (file, None),
            Err(error) => (None, Some(error)),
        };
        Self {
            path: path.to_owned(),
            file_name: path.rsplit('/').next().unwrap_or(path).to_owned(),
            file,
            records: None,
            options,
            raw: RawEvent::empty(),
            payload: None,
            packed: false,
            tables: HashMap::new(),
            lines: VecDeque::new(),
            transaction: Transaction::default(),
            summary: Summary::default(),
            json_style: Style::default(),
            failed,
        }
    }

    /// Returns about `limit` lines (with those of at most one event more), fewer at the end, and None after
    /// the last one. With `count_only`, `limit` counts events. An error is returned once, after all lines
    /// before it.
    pub fn next_lines(&mut self, limit: usize) -> Result<Option<Vec<String>>> {
        let mut events = 0;
        let mut ended = false;
        while self.failed.is_none() && self.lines.len() < limit && !ended {
            match self.step() {
                Ok(more) => ended = !more,
                Err(error) => self.failed = Some(error.in_file(&self.path)),
            }
            events += 1;
            if self.options.count_only && events >= limit {
                return Ok(Some(Vec::new()));
            }
        }
        if self.lines.is_empty() {
            return match self.failed.clone() {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        let count = limit.max(1).min(self.lines.len());
        Ok(Some(self.lines.drain(..count).collect()))
    }

    /// A summary of what has been read, as JSON.
    pub fn summary(&self) -> String {
        self.summary.to_json(&self.file_name, self.failed.as_ref())
    }

    /// Reads one event of the file, or of the payload that is being unpacked. Returns false at the end.
    fn step(&mut self) -> Result<bool> {
        if let Some(mut records) = self.records.take() {
            let result =
                records.step(&mut |record, commit_us, gtid| self.take_record(record, commit_us, gtid));
            self.records = Some(records);
            return result;
        }
        let Some(mut file) = self.file.take() else { return Ok(false) };
        let mut raw = std::mem::replace(&mut self.raw, RawEvent::empty());
        let result = self.read_event(&mut file, &mut raw);
        self.raw = raw;
        self.file = Some(file);
        result
    }

    /// Takes a record of a transaction.
    fn take_record(&mut self, record: &Record<'_>, commit_us: u64, gtid: Option<&Gtid>) -> Result<()> {
        self.summary.count_record(records::name_of(record.kind));
        match record.kind {
            typed_rows::BEGIN => self.transaction.gtid = gtid.map(ToString::to_string),
            typed_rows::DEFINITION => {
                let definition = typed_rows::Definition::parse(record)?;
                let map = definition.map_of(&definition.schema()?)?;
                self.tables.insert(map.table_id, KnownTable::new(map, &self.options.tables));
            }
            typed_rows::ROWS => {
                let mut rows = typed_rows::rows_of(record)?;
                let Some(table) = self.tables.remove(&rows.table_id) else {
                    return Err(DecodeError::new("rows without a definition before them", record.offset));
                };
                let place = (record.offset, commit_us);
                let result = rows.check(&table.map).and_then(|()| self.take_images(place, &mut rows, &table));
                self.tables.insert(rows.table_id, table);
                result?;
            }
            typed_rows::COMMIT => self.summary.count_transaction(gtid, None, commit_us),
            _ => {}
        }
        Ok(())
    }

    fn read_event(&mut self, file: &mut FileEvents, raw: &mut RawEvent) -> Result<bool> {
        if let Some((payload, offset)) = &mut self.payload {
            let offset = *offset;
            if payload.next_into(&mut raw.bytes)? {
                raw.header = EventHeader::parse(&raw.bytes, offset)?;
                (raw.offset, raw.checksum) = (offset, Checksum::None);
                self.take_event(&raw.event()?, file)?;
                return Ok(true);
            }
            self.payload = None;
        }
        if !file.next_into(raw)? {
            return Ok(false);
        }
        let event = raw.event()?;
        self.take_event(&event, file)?;
        Ok(true)
    }

    fn take_event(&mut self, event: &Event<'_>, file: &FileEvents) -> Result<()> {
        let kind = event.header.kind;
        if self.summary.is_empty() && kind != EventKind::FORMAT_DESCRIPTION {
            self.summary.problem(NO_FORMAT, event.offset);
        }
        self.summary.count_event(kind);
        self.packed = mariadb::is_compressed(kind.0);
        if self.packed {
            let plain = mariadb::unpack_event(event.raw, event.body, Checksum::None, event.offset)?;
            return self.take_plain(&Event::parse(&plain, event.offset, Checksum::None)?, file);
        }
        self.packed = self.payload.is_some();
        self.take_plain(event, file)
    }

    fn take_plain(&mut self, event: &Event<'_>, file: &FileEvents) -> Result<()> {
        match event.header.kind {
            EventKind::GTID
            | EventKind::ANONYMOUS_GTID
            | EventKind::GTID_TAGGED
            | EventKind::MARIADB_GTID => {
                self.take_gtid(event)?;
            }
            EventKind::QUERY => {
                let statement = Statement::parse(event, file.format())?;
                self.take_statement(&statement, event);
            }
            EventKind::XID | EventKind::XA_PREPARE => self.end_transaction(event),
            EventKind::TABLE_MAP => self.take_table_map(event, file)?,
            EventKind::TRANSACTION_PAYLOAD => {
                let offset = event.offset;
                self.payload = Some((Payload::open(event.body, event.header.end_position, offset)?, offset));
            }
            EventKind::PRE_GA_WRITE_ROWS | EventKind::PRE_GA_UPDATE_ROWS | EventKind::PRE_GA_DELETE_ROWS => {
                self.summary
                    .note("row events of MySQL before 5.1.16 (types 20 to 22) are counted, not decoded");
            }
            EventKind::INCIDENT => self.summary.problem(LOST_EVENTS, event.offset),
            EventKind::MARIADB_START_ENCRYPTION => {
                return Err(DecodeError::new(
                    "the rest of the file is encrypted (MariaDB); it cannot be read",
                    event.offset,
                ));
            }
            kind if kind.rows().is_some() => self.take_rows(event, file)?,
            _ => {}
        }
        Ok(())
    }

    fn take_gtid(&mut self, event: &Event<'_>) -> Result<()> {
        let mut transaction = Transaction::default();
        let (body, base) = (event.body, event.cursor().offset());
        let parsed = match event.header.kind {
            EventKind::MARIADB_GTID => {
                let mut cursor = event.cursor();
                let sequence = cursor.u64("GTID sequence")?;
                let domain = cursor.u32("GTID domain")?;
                // No BEGIN follows: without this mark the transaction goes on to XID, COMMIT or XA PREPARE.
                transaction.open = cursor.u8("GTID flags")? & MARIADB_STANDALONE == 0;
                let gtid = Domain { domain, server_id: event.header.server_id, sequence };
                transaction.gtid = Some(gtid.to_string());
                transaction.domain = Some(gtid);
                GtidEvent::default()
            }
            EventKind::GTID_TAGGED => GtidEvent::parse_tagged(body, base)?,
            kind => GtidEvent::parse_plain(body, base, kind == EventKind::ANONYMOUS_GTID)?,
        };
        transaction.gtid = transaction.gtid.or(parsed.gtid.as_ref().map(ToString::to_string));
        transaction.gtid_event = Some(parsed);
        self.transaction = transaction;
        Ok(())
    }

    fn take_statement(&mut self, statement: &Statement, event: &Event<'_>) {
        match control(statement.sql.as_bytes()) {
            Control::Begin | Control::CreatesWithRows | Control::Xa(XaStatement::Start) => {
                self.transaction.open = true;
            }
            Control::Commit => self.end_transaction(event),
            Control::Rollback => {
                self.summary.note(TAKEN_BACK);
                self.end_transaction(event);
            }
            Control::RollbackTo(_) => self.summary.note(TAKEN_BACK),
            Control::Xa(XaStatement::Commit | XaStatement::Rollback) => self.end_transaction(event),
            Control::Savepoint(_) | Control::Release | Control::Xa(XaStatement::End) => {}
            Control::Other if self.transaction.open => {}
            Control::Other => self.end_transaction(event),
        }
    }

    fn end_transaction(&mut self, event: &Event<'_>) {
        let transaction = std::mem::take(&mut self.transaction);
        let commit_us = self.commit_us(transaction.gtid_event.as_ref(), event);
        let gtid = transaction.gtid_event.and_then(|parsed| parsed.gtid);
        self.summary.count_transaction(gtid.as_ref(), transaction.domain, commit_us);
    }

    /// The commit time in the GTID event (8.0 and later), else when the statement began.
    fn commit_us(&self, gtid: Option<&GtidEvent>, event: &Event<'_>) -> u64 {
        let of_commit = gtid.and_then(GtidEvent::commit_us);
        of_commit.unwrap_or(u64::from(event.header.timestamp) * 1_000_000)
    }

    fn take_table_map(&mut self, event: &Event<'_>, file: &FileEvents) -> Result<()> {
        let mut map = TableMap::parse(event, file.format())?;
        if self.tables.len() >= MAPS_MAX {
            self.tables.clear();
        }
        let name = map.name();
        if let Some(schema) = self.options.schemas.iter().find(|schema| schema.name() == name) {
            complete(&mut map, schema);
        }
        let table = KnownTable::new(map, &self.options.tables);
        self.tables.insert(table.map.table_id, table);
        Ok(())
    }

    fn take_rows(&mut self, event: &Event<'_>, file: &FileEvents) -> Result<()> {
        self.json_style = file.format().json_style();
        let mut rows = RowsEvent::parse(event, file.format())?;
        // Some servers end a statement with an event of no table and no rows.
        if rows.images.is_empty() && !self.tables.contains_key(&rows.table_id) {
            return Ok(());
        }
        let Some(table) = self.tables.remove(&rows.table_id) else {
            return Err(DecodeError::new(
                format!(
                    "a row event names table {}, for which there is no table map before it",
                    rows.table_id
                ),
                event.offset,
            ));
        };
        let place = (event.offset, self.commit_us(self.transaction.gtid_event.as_ref(), event));
        let result = rows.check(&table.map).and_then(|()| self.take_images(place, &mut rows, &table));
        self.tables.insert(rows.table_id, table);
        result?;
        if rows.flags & RowsEvent::FLAG_STATEMENT_END != 0 && !self.transaction.open {
            // Tables without transactions, before there was a BEGIN around them.
            self.end_transaction(event);
        }
        Ok(())
    }

    /// `offset`, `commit_us`: of what has the rows, and of their transaction.
    fn take_images(
        &mut self,
        (offset, commit_us): (u64, u64),
        rows: &mut RowsEvent<'_>,
        table: &KnownTable,
    ) -> Result<()> {
        let (map, lines) = (&table.map, table.wanted && !self.options.count_only);
        if map.undefined_column().is_some() {
            self.summary.note(crate::old_temporal::NOT_SHOWN);
            return Ok(());
        }
        let tail = lines.then(|| self.tail(offset, commit_us));
        while !rows.images.is_empty() {
            let start = rows.images;
            let sequence =
                if self.packed { self.options.base + offset } else { self.options.base + start.offset() };
            let (mut before, mut after, mut unknown) = (None, None, Vec::new());
            if rows.kind != RowsKind::Insert {
                before = self.image(&mut rows.images, table, rows.present, lines)?;
            }
            if rows.kind == RowsKind::Update {
                let mut image = rows.images;
                (after, unknown) = self.image_after(rows, start, &mut image, table, lines)?;
                rows.images = image;
            } else if rows.kind == RowsKind::Insert {
                after = self.image(&mut rows.images, table, rows.present, lines)?;
            }
            if rows.images.position() == start.position() {
                return Err(start.fail(format!("a row event of {} with rows of no length", map.name())));
            }
            if table.wanted {
                self.summary.count_row(rows.kind, &table.name);
            }
            if let Some(tail) = &tail {
                if !unknown.is_empty() {
                    self.summary.note(ONLY_CHANGES);
                }
                let end = end_of_line(sequence, table, &unknown);
                self.lines.push_back(line(&table.name, rows.kind, before, after, tail, &end));
            }
        }
        Ok(())
    }

    fn image(
        &self,
        images: &mut Cursor<'_>,
        table: &KnownTable,
        present: Present<'_>,
        wanted: bool,
    ) -> Result<Option<Vec<u8>>> {
        if !wanted {
            skip_image(images, &table.map, present)?;
            return Ok(None);
        }
        let mut row = JsonRow::new(&table.map, &table.names, self.json_style);
        walk_image(images, &table.map, present, &mut row)?;
        Ok(Some(row.finish()))
    }

    /// The image after an update, which may have changes of the JSON documents before it.
    fn image_after<'a>(
        &self,
        rows: &RowsEvent<'a>,
        before: Cursor<'a>,
        image: &mut Cursor<'a>,
        table: &KnownTable,
        wanted: bool,
    ) -> Result<(Option<Vec<u8>>, Vec<usize>)> {
        if !wanted {
            rows.skip_after(image, &table.map)?;
            return Ok((None, Vec::new()));
        }
        let mut row = JsonRow::new(&table.map, &table.names, self.json_style);
        rows.walk_after_image(before, image, &table.map, &mut row)?;
        let unknown = std::mem::take(&mut row.unknown);
        Ok((Some(row.finish()), unknown))
    }

    /// The part of a line that is the same for all rows of an event.
    fn tail(&self, offset: u64, commit_us: u64) -> Vec<u8> {
        let mut tail = b",\"ts\":".to_vec();
        write_json_string(&iso(commit_us), &mut tail);
        tail.extend_from_slice(b",\"gtid\":");
        match &self.transaction.gtid {
            Some(gtid) => write_json_string(gtid, &mut tail),
            None => tail.extend_from_slice(b"null"),
        }
        tail.extend_from_slice(b",\"file\":");
        write_json_string(&self.file_name, &mut tail);
        tail.extend_from_slice(format!(",\"pos\":{offset},\"sequence\":").as_bytes());
        tail
    }
}

const LOST_EVENTS: &str = "the source lost events here (INCIDENT): rows may have changed that are in no log";
const NO_FORMAT: &str =
    "the file does not begin with a format description, so that it is not a whole binlog \
                         file; it was read as one of MySQL 5.1 to 5.5";
const TAKEN_BACK: &str =
    "changes that a ROLLBACK or ROLLBACK TO took back are in the file, and are counted and \
                          listed like all others";
const ONLY_CHANGES: &str = "JSON columns of which the log has only changes (partial JSON without the image \
                            before) are left out of `after`";
