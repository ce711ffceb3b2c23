//! One walk over a part of a binlog, which finds the events of many tables.

use std::collections::HashMap;

use crate::error::Result;
use crate::mysql::control::{control, Control, XaStatement};
use crate::mysql::event::{EventHeader, EventKind, FormatDescription};
use crate::mysql::log_file::LogFile;
use crate::mysql::row_event::is_dummy;
use crate::mysql::scan::{statement, table_id};
use crate::mysql::table_map::TableMapHead;
use crate::outline::{Outline, Table, POSITIONS_MAX};
use crate::segment_file::SegmentFile;
use crate::split::Split;
use crate::window::Direction;

/// What has been found.
struct Found {
    positions: Vec<Vec<u64>>,
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

/// The outline of a split for `tables` (database and name). None: there are too many events.
pub fn outline(tables: &[(String, String)], split: &Split) -> Result<Option<Outline>> {
    outline_over(LogFile::open(&split.file, split.base)?, tables, split)
}

/// An outline of a split over an open file, instead of the split's file.
pub fn outline_over(
    mut file: LogFile,
    tables: &[(String, String)],
    split: &Split,
) -> Result<Option<Outline>> {
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
    let mut found = Found { positions: vec![Vec::new(); tables.len()], unclear: Vec::new(), count: 0 };
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
    Ok(Outline::new(split.base, found.positions, found.unclear))
}

impl Found {
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
