//! Finds the row events of one table in a part of the log. Layouts `changelog` and `latest` and sets of keys
//! are built from them.
//!
//! Events of other tables are skipped by their headers and table ids. A part may begin inside a transaction.
//! Its preamble then names the GTID event and the current table maps.

use std::collections::HashSet;
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::mysql::control::{control, Control, XaStatement};
use crate::mysql::event::{Event, EventHeader, EventKind, FormatDescription};
use crate::mysql::gtid::GtidSet;
use crate::mysql::gtid_event::{prepares_xa, GtidEvent};
use crate::mysql::log_file::LogFile;
use crate::mysql::query::query;
use crate::mysql::row_event::is_dummy;
use crate::mysql::table_map::TableMapHead;
use crate::plan;
use crate::row_log::{Dialect, RowScan};
use crate::rows::RowsEvent;
use crate::schema::TableSchema;
use crate::segment_file::SegmentFile;
use crate::split::{Split, Visits};
use crate::table_map::TableMap;
use crate::transaction_set::TransactionSet as _;
use crate::window::Direction;

/// A row event of the table.
#[derive(Debug, Clone, Copy)]
pub struct RowsAt {
    /// The event's position in the file.
    pub position: u64,
    pub header: EventHeader,
    /// Index into `RangeScan::maps`.
    pub map: u32,
    /// Microseconds since 1970 of the transaction's commit.
    pub commit_us: i64,
}

/// Whether the open transaction is an XA transaction. Its rows are in the log when it is prepared, but do not
/// count before its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Xa {
    #[default]
    No,
    /// Prepared, or not yet known to be committed in one phase.
    Open,
    /// `XA COMMIT … ONE PHASE`.
    Committed,
}

#[derive(Debug, Clone, Copy, Default)]
struct Transaction {
    commit_us: Option<i64>,
    excluded: bool,
    xa: Xa,
}

pub struct RangeScan {
    file: LogFile,
    path: String,
    format: FormatDescription,
    table: Arc<TableSchema>,
    table_name: String,
    exclude: Option<GtidSet>,
    visits: Visits,
    transaction: Transaction,
    maps: Vec<Arc<TableMap>>,
    /// Body of the last table map of this table: most servers repeat it for each statement.
    last_map: Vec<u8>,
    /// The table's present id, and the index of its present map.
    current: Option<(u64, u32)>,
    foreign: HashSet<u64>,
}

impl RangeScan {
    pub fn new(table: Arc<TableSchema>, split: &Split, exclude: Option<GtidSet>) -> Result<Self> {
        let open = if split.positions.is_some() { LogFile::open_for_few } else { LogFile::open };
        Self::over(open(&split.file, split.base)?, table, split, exclude)
    }

    /// A scan of a split over an open file, instead of the split's file.
    pub fn over(
        file: LogFile,
        table: Arc<TableSchema>,
        split: &Split,
        exclude: Option<GtidSet>,
    ) -> Result<Self> {
        let mut scan = Self {
            format: file.format().clone(),
            path: file.path().to_owned(),
            file,
            table_name: table.name(),
            table,
            exclude: exclude.filter(|set| !set.is_empty()),
            // Every file begins with the four bytes of its magic number.
            visits: split.visits(4)?,
            transaction: Transaction::default(),
            maps: Vec::new(),
            last_map: Vec::new(),
            current: None,
            foreign: HashSet::new(),
        };
        for (other, base, offset) in &split.preamble {
            scan.read_preamble(other, *base, *offset)?;
        }
        scan.file.read_to(scan.visits.end);
        Ok(scan)
    }

    pub fn base(&self) -> u64 {
        self.file.base()
    }

    fn advance(&mut self) -> Result<Option<RowsAt>> {
        while let Some(position) = self.visits.next_position() {
            let header = self.file.header(position, self.visits.end)?;
            self.visits.position = position + u64::from(header.size);
            match header.kind {
                EventKind::TABLE_MAP => {
                    let event = self.file.event(position, header, Direction::Forward)?;
                    let state = (&mut self.maps, &mut self.last_map, &mut self.current, &mut self.foreign);
                    note_table_map(&event, &self.format, &self.table, state)?;
                }
                kind if kind.rows().is_some() => {
                    if let Some(rows) = self.rows_at(position, header)? {
                        return Ok(Some(rows));
                    }
                }
                EventKind::TRANSACTION_PAYLOAD => {
                    let reason = "a compressed transaction; a relay log holds them unpacked";
                    return Err(DecodeError::new(reason, self.file.base() + position));
                }
                kind if kind.is_gtid() => {
                    let event = self.file.event(position, header, Direction::Forward)?;
                    self.transaction = open_transaction(&event, self.exclude.as_ref())?;
                }
                EventKind::QUERY => self.note_query(position, header)?,
                EventKind::XID | EventKind::XA_PREPARE => self.transaction = Transaction::default(),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The row event, if it is of this table and not of an excluded transaction.
    fn rows_at(&mut self, position: u64, header: EventHeader) -> Result<Option<RowsAt>> {
        let offset = self.file.base() + position;
        let table_id = table_id(&mut self.file, &self.format, position, header)?;
        let map = match self.current {
            Some((id, map)) if id == table_id => map,
            _ if self.foreign.contains(&table_id) || is_dummy(table_id) => return Ok(None),
            _ => {
                let reason = format!("a row event of table id {table_id}, for which there was no table map");
                return Err(DecodeError::new(reason, offset));
            }
        };
        if self.transaction.excluded {
            return Ok(None);
        }
        if self.transaction.xa == Xa::Open && !self.commits_in_one_phase()? {
            let reason =
                format!("rows of {} in an XA prepared transaction cannot be emitted", self.table_name);
            return Err(DecodeError::of_table(&self.table_name, reason, offset));
        }
        let commit_us = self.transaction.commit_us.unwrap_or(i64::from(header.timestamp) * 1_000_000);
        Ok(Some(RowsAt { position, header, map, commit_us }))
    }

    /// Looks ahead for the end of the open XA transaction.
    fn commits_in_one_phase(&mut self) -> Result<bool> {
        let mut position = self.visits.position;
        loop {
            let header = self.file.header(position, u64::MAX)?;
            if header.kind == EventKind::XA_PREPARE {
                let one_phase = self.file.body_start(position, header, 1)?.first() == Some(&1);
                if one_phase {
                    self.transaction.xa = Xa::Committed;
                }
                return Ok(one_phase);
            }
            if header.kind.is_gtid() || header.kind == EventKind::XID {
                return Ok(false);
            }
            position += u64::from(header.size);
        }
    }

    fn note_query(&mut self, position: u64, header: EventHeader) -> Result<()> {
        let event = self.file.event(position, header, Direction::Forward)?;
        match control(statement(&event)?) {
            Control::Xa(XaStatement::Start) => self.transaction.xa = Xa::Open,
            Control::Commit | Control::Rollback => self.transaction = Transaction::default(),
            _ => {}
        }
        Ok(())
    }

    fn read_preamble(&mut self, file: &SegmentFile, base: u64, offset: u64) -> Result<()> {
        let path = file.name();
        let mut other = LogFile::open_for_few(file, base)?;
        let Some(position) = offset.checked_sub(base) else {
            return Err(DecodeError::new("a preamble event before its segment", offset).in_file(path));
        };
        let format = other.format().clone();
        let mut apply = || {
            let header = other.header(position, u64::MAX)?;
            let event = other.event(position, header, Direction::Forward)?;
            match header.kind {
                EventKind::TABLE_MAP => {
                    let state = (&mut self.maps, &mut self.last_map, &mut self.current, &mut self.foreign);
                    note_table_map(&event, &format, &self.table, state)
                }
                kind if kind.is_gtid() => {
                    self.transaction = open_transaction(&event, self.exclude.as_ref())?;
                    Ok(())
                }
                other => Err(DecodeError::new(format!("a preamble event of type {}", other.0), offset)),
            }
        };
        apply().map_err(|error| error.in_file(path))
    }
}

impl RowScan for RangeScan {
    type At = RowsAt;

    fn table(&self) -> &Arc<TableSchema> {
        &self.table
    }

    fn dialect(&self) -> Dialect {
        dialect(&self.format)
    }

    #[inline]
    fn next_rows(&mut self) -> Result<Option<RowsAt>> {
        self.advance().map_err(|error| error.in_file(self.file.path()))
    }

    #[inline]
    fn map(&self, at: &RowsAt) -> Arc<TableMap> {
        self.maps[at.map as usize].clone()
    }

    fn offset(&self, at: &RowsAt) -> u64 {
        self.file.base() + at.position
    }

    #[inline]
    fn commit_us(&self, at: &RowsAt) -> i64 {
        at.commit_us
    }

    #[inline]
    fn rows(&mut self, at: &RowsAt, map: &TableMap, direction: Direction) -> Result<RowsEvent<'_>> {
        let Self { file, path, format, .. } = self;
        let event = file.event(at.position, at.header, direction).map_err(|error| error.in_file(path))?;
        open_rows(&event, format, map)
    }

    /// An error that has a file's name is of the file: other tables have it, too.
    fn locate(&self, error: DecodeError) -> DecodeError {
        match error.path() {
            Some(_) => error,
            None => error.of(&self.table_name).in_file(self.file.path()),
        }
    }
}

/// What values depend on in logs with this format description.
pub fn dialect(format: &FormatDescription) -> Dialect {
    Dialect { json: format.json_style(), omits_generated: format.is_mariadb() }
}

/// The table id of a row event.
pub fn table_id(
    file: &mut LogFile,
    format: &FormatDescription,
    position: u64,
    header: EventHeader,
) -> Result<u64> {
    let size = format.table_id_size(header.kind);
    let offset = file.base() + position;
    Cursor::new(file.body_start(position, header, size)?, offset).uint_le(size, "table id")
}

/// The SQL of a QUERY event.
pub fn statement<'a>(event: &Event<'a>) -> Result<&'a [u8]> {
    Ok(query(event.body, event.cursor().offset())?.1)
}

type MapState<'a> =
    (&'a mut Vec<Arc<TableMap>>, &'a mut Vec<u8>, &'a mut Option<(u64, u32)>, &'a mut HashSet<u64>);

fn note_table_map(
    event: &Event<'_>,
    format: &FormatDescription,
    table: &TableSchema,
    (maps, last_map, current, foreign): MapState<'_>,
) -> Result<()> {
    if current.is_some() && event.body == last_map.as_slice() {
        return Ok(());
    }
    let head = TableMapHead::parse(event, format)?;
    let ours = head.database == table.database.as_bytes() && head.table == table.table.as_bytes();
    if !ours {
        if current.is_some_and(|(id, _)| id == head.table_id) {
            *current = None;
        }
        foreign.insert(head.table_id);
        return Ok(());
    }
    let name = table.name();
    let map = TableMap::parse(event, format).map_err(|error| error.of(&name))?;
    let map = plan::fit(map, table).map_err(|difference| {
        let reason = format!(
            "the table map of {name} does not fit its schema (version {}): {difference}",
            table.version
        );
        DecodeError::of_table(name, reason, event.offset)
    })?;
    foreign.remove(&head.table_id);
    maps.push(Arc::new(map));
    *current = Some((head.table_id, maps.len() as u32 - 1));
    event.body.clone_into(last_map);
    Ok(())
}

fn open_transaction(event: &Event<'_>, exclude: Option<&GtidSet>) -> Result<Transaction> {
    let base = event.cursor().offset();
    // Without commit times (MariaDB, and MySQL before 8.0), the seconds of the header are used.
    let seconds = i64::from(event.header.timestamp) * 1_000_000;
    let mut transaction = Transaction { commit_us: Some(seconds), ..Transaction::default() };
    let gtid = match event.header.kind {
        EventKind::GTID => GtidEvent::parse_plain(event.body, base, false)?,
        EventKind::ANONYMOUS_GTID => GtidEvent::parse_plain(event.body, base, true)?,
        EventKind::GTID_TAGGED => GtidEvent::parse_tagged(event.body, base)?,
        _ => {
            if prepares_xa(event.body) {
                transaction.xa = Xa::Open;
            }
            GtidEvent::parse_mariadb(event.body, base, event.header.server_id)?
        }
    };
    if let Some(commit_us) = gtid.commit_us().and_then(|us| i64::try_from(us).ok()) {
        transaction.commit_us = Some(commit_us);
    }
    if let (Some(exclude), Some(gtid)) = (exclude, &gtid.gtid) {
        transaction.excluded = exclude.contains(gtid);
    }
    Ok(transaction)
}

/// Parses the row event and checks that it fits its map.
fn open_rows<'a>(event: &Event<'a>, format: &FormatDescription, map: &TableMap) -> Result<RowsEvent<'a>> {
    let rows = RowsEvent::parse(event, format)
        .map_err(|error| DecodeError::of_table(map.name(), error.reason(), error.offset()))?;
    rows.check(map)?;
    Ok(rows)
}
