//! The positions of the events of many tables in a part of the log, found in one walk over it.
//!
//! A decoder of one table steps over the events of all other tables by their headers. For a thousand
//! tables that is a thousand walks over the same bytes. With an outline, each decoder visits the events of
//! its table only.

use std::collections::HashMap;

use crate::control::{control, Control, XaStatement};
use crate::error::Result;
use crate::event::{EventHeader, EventKind, FormatDescription};
use crate::log_file::{Direction, LogFile};
use crate::rows::is_dummy;
use crate::scan::{statement, table_id};
use crate::segment_file::SegmentFile;
use crate::split::Split;
use crate::table_map::TableMapHead;

/// Limit of the positions of all tables together: 64 MB.
const POSITIONS_MAX: usize = 8 << 20;

/// A table, as its place in the caller's list.
type Table = usize;

#[derive(Debug)]
pub struct Outline {
    base: u64,
    positions: Vec<Vec<u64>>,
    /// Events of which only a decoder can tell whether they are of its table.
    unclear: Vec<u64>,
    count: usize,
}

/// What is known at one point of the walk.
struct Walk<'a> {
    format: FormatDescription,
    names: HashMap<(&'a [u8], &'a [u8]), Table>,
    /// The tables, by table id. None: one that was not requested.
    ids: HashMap<u64, Option<Table>>,
    /// For each table, the events of the open transaction that its decoder must read first.
    opening: Vec<u64>,
    transaction: u64,
    /// For each table, the last transaction that changed it.
    entered: Vec<u64>,
}

impl Outline {
    /// The outline of a split for `tables` (database and name). None: there are too many events.
    pub fn new(tables: &[(String, String)], split: &Split) -> Result<Option<Self>> {
        Self::over(LogFile::open(&split.file, split.base)?, tables, split)
    }

    /// An outline of a split over an open file, instead of the split's file.
    pub fn over(mut file: LogFile, tables: &[(String, String)], split: &Split) -> Result<Option<Self>> {
        let names = tables.iter().enumerate();
        let mut walk = Walk {
            format: file.format().clone(),
            names: names.map(|(table, name)| ((name.0.as_bytes(), name.1.as_bytes()), table)).collect(),
            ids: HashMap::new(),
            opening: Vec::new(),
            transaction: 0,
            entered: vec![u64::MAX; tables.len()],
        };
        for (other, base, offset) in &split.preamble {
            walk.read_preamble(other, *base, *offset).map_err(|error| error.in_file(other.name()))?;
        }
        let positions = vec![Vec::new(); tables.len()];
        let mut found = Self { base: split.base, positions, unclear: Vec::new(), count: 0 };
        let end = split.end.saturating_sub(split.base);
        file.read_to(end);
        let mut position = split.start.saturating_sub(split.base).max(4);
        while position < end {
            let size = found.visit(&mut walk, &mut file, position, end);
            position += size.map_err(|error| error.in_file(split.file.name()))?;
            if found.count > POSITIONS_MAX {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// From the positions of each table. None: there are too many.
    pub fn of_positions(base: u64, positions: Vec<Vec<u64>>) -> Option<Self> {
        let count = positions.iter().map(Vec::len).sum();
        (count <= POSITIONS_MAX).then_some(Self { base, positions, unclear: Vec::new(), count })
    }

    /// What the decoder of a table must read of `(start, end]`: positions in the file, in order.
    pub fn positions(&self, table: Table, start: u64, end: u64) -> Vec<u64> {
        let within = |all: &[u64]| {
            let first = all.partition_point(|position| self.base + position < start);
            let last = all.partition_point(|position| self.base + position < end);
            all.get(first..last).unwrap_or_default().to_vec()
        };
        let mut found = within(self.positions.get(table).map_or(&[], Vec::as_slice));
        found.extend(within(&self.unclear));
        found.sort_unstable();
        found
    }

    /// Returns the event's size.
    fn visit(&mut self, walk: &mut Walk<'_>, file: &mut LogFile, position: u64, end: u64) -> Result<u64> {
        let header = file.header(position, end)?;
        match header.kind {
            EventKind::TABLE_MAP => {
                let (before, table) = walk.note_table_map(file, position, header)?;
                // If an id is given to another table, the decoder of the table that had it must see that map.
                for table in before.filter(|before| Some(*before) != table).into_iter().chain(table) {
                    self.add(walk, table, position);
                }
            }
            EventKind::QUERY => {
                let event = file.event(position, header, Direction::Forward)?;
                if control(statement(&event)?) == Control::Xa(XaStatement::Start) {
                    walk.opening.push(position);
                }
            }
            // The ends of transactions are in no list: the next transaction begins with one of these events.
            kind if kind.is_gtid() => {
                walk.transaction += 1;
                walk.opening.clear();
                walk.opening.push(position);
            }
            kind if kind.rows().is_some() => {
                let id = table_id(file, &walk.format, position, header)?;
                match walk.ids.get(&id) {
                    Some(Some(table)) => self.add(walk, *table, position),
                    None if !is_dummy(id) => self.add_unclear(position),
                    _ => {}
                }
            }
            EventKind::TRANSACTION_PAYLOAD => self.add_unclear(position),
            _ => {}
        }
        Ok(u64::from(header.size))
    }

    fn add(&mut self, walk: &mut Walk<'_>, table: Table, position: u64) {
        let positions = &mut self.positions[table];
        let before = positions.len();
        if walk.entered[table] != walk.transaction {
            walk.entered[table] = walk.transaction;
            positions.extend(&walk.opening);
        }
        positions.push(position);
        self.count += positions.len() - before;
    }

    fn add_unclear(&mut self, position: u64) {
        self.unclear.push(position);
        self.count += 1;
    }
}

impl Walk<'_> {
    /// Returns the table that had the map's id, and the map's table. None: one that was not requested.
    fn note_table_map(
        &mut self,
        file: &mut LogFile,
        position: u64,
        header: EventHeader,
    ) -> Result<(Option<Table>, Option<Table>)> {
        let event = file.event(position, header, Direction::Forward)?;
        let head = TableMapHead::parse(&event, &self.format)?;
        let table = self.names.get(&(head.database, head.table)).copied();
        Ok((self.ids.insert(head.table_id, table).flatten(), table))
    }

    /// A table map among the events that every decoder reads first, because it names the table of the first
    /// row events.
    fn read_preamble(&mut self, file: &SegmentFile, base: u64, offset: u64) -> Result<()> {
        let mut file = LogFile::open_for_few(file, base)?;
        let position = offset.saturating_sub(base);
        let header = file.header(position, u64::MAX)?;
        if header.kind == EventKind::TABLE_MAP {
            self.note_table_map(&mut file, position, header)?;
        }
        Ok(())
    }
}
