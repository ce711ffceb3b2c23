//! Finds the rows of one table in a part of the log.

use std::collections::HashMap;
use std::sync::Arc;

use super::family::Family;
use super::{
    begin_of, definition, id_of, message_of, rewritten_rows, rows_of, undefined, Definition, Named, BEGIN,
    COMMIT, DEFINITION, MESSAGE, NOTE, ROWS, STATEMENT, USE,
};
use crate::error::{DecodeError, Result};
use crate::records::{Header, RecordFile};
use crate::row_log::{Dialect, RowScan};
use crate::rows::RowsEvent;
use crate::schema::TableSchema;
use crate::split::{Split, Visits};
use crate::table_map::TableMap;
use crate::transaction_set::TransactionSet as _;
use crate::window::Direction;

#[derive(Debug, Clone, Copy)]
pub struct RowsAt {
    position: u64,
    header: Header,
    /// Index into `RowsScan::maps`.
    map: u32,
    commit_us: i64,
}

pub struct RowsScan<F: Family> {
    file: RecordFile,
    path: String,
    table: Arc<TableSchema>,
    table_name: String,
    exclude: Option<F::Set>,
    visits: Visits,
    commit_us: i64,
    excluded: bool,
    maps: Vec<Arc<TableMap>>,
    /// For the same definitions as `maps`.
    columns: Vec<F::Columns>,
    scratch: F::Scratch,
    /// The last row that came as a message.
    written: Vec<u8>,
    /// The body of the last definition of this table.
    last: Vec<u8>,
    /// The indexes of the maps of its definitions, by their positions.
    known: HashMap<u64, u32>,
    /// The table's present id, and the index of its present map. None: the transaction has not defined it.
    current: Option<(u64, u32)>,
    /// Ids of the transaction's definitions of other tables.
    foreign: Vec<u64>,
}

impl<F: Family> RowsScan<F> {
    pub fn new(table: Arc<TableSchema>, split: &Split, exclude: Option<F::Set>) -> Result<Self> {
        let open = if split.positions.is_some() { RecordFile::open_for_few } else { RecordFile::open };
        Self::over(open(&split.file, split.base, F::NAME)?, table, split, exclude)
    }

    /// A scan of a split over an open file, instead of the split's file.
    pub fn over(
        mut file: RecordFile,
        table: Arc<TableSchema>,
        split: &Split,
        exclude: Option<F::Set>,
    ) -> Result<Self> {
        let visits = split.visits(file.start())?;
        file.read_to(visits.end);
        Ok(Self {
            path: file.path().to_owned(),
            file,
            table_name: table.name(),
            table,
            exclude: exclude.filter(|set| !set.is_empty()),
            visits,
            commit_us: 0,
            excluded: false,
            maps: Vec::new(),
            columns: Vec::new(),
            scratch: F::Scratch::default(),
            written: Vec::new(),
            last: Vec::new(),
            known: HashMap::new(),
            current: None,
            foreign: Vec::new(),
        })
    }

    fn advance(&mut self) -> Result<Option<RowsAt>> {
        while let Some(position) = self.visits.next_position() {
            let header = self.file.header(position, self.visits.end)?;
            self.visits.position = position + header.size;
            match header.kind {
                BEGIN => {
                    let record = self.file.record(position, header, Direction::Forward)?;
                    let (commit_us, id) = begin_of(&record)?;
                    self.commit_us = commit_us;
                    self.excluded = match &self.exclude {
                        Some(exclude) => exclude.contains(&id.parse()?),
                        None => false,
                    };
                    self.current = None;
                    self.foreign.clear();
                }
                DEFINITION | USE => self.note_definition(position, header)?,
                COMMIT => self.current = None,
                ROWS | MESSAGE if self.excluded => {}
                ROWS | MESSAGE => {
                    // Also a record of another table is checked: its id says that it is one.
                    let record = self.file.record(position, header, Direction::Forward)?;
                    let id = id_of(record.body, record.offset)?;
                    if let Some((_, map)) = self.current.filter(|(known, _)| *known == id) {
                        return Ok(Some(RowsAt { position, header, map, commit_us: self.commit_us }));
                    }
                    if !self.foreign.contains(&id) {
                        return Err(undefined(&record));
                    }
                }
                NOTE | STATEMENT => {}
                kind => {
                    let reason = format!("a record of the unknown kind {kind}");
                    return Err(DecodeError::new(reason, self.file.base() + position));
                }
            }
        }
        Ok(None)
    }

    fn note_definition(&mut self, position: u64, header: Header) -> Result<()> {
        let record = self.file.record(position, header, Direction::Forward)?;
        let named = Named::parse(&record)?;
        let (id, at) = (named.id, named.at.unwrap_or(position));
        if !named.is_of(&self.table) {
            self.current = self.current.filter(|(known, _)| *known != id);
            self.foreign.push(id);
            return Ok(());
        }
        let map = match self.known.get(&at) {
            Some(map) => *map,
            None => self.read_definition(id, at)?,
        };
        self.foreign.retain(|foreign| *foreign != id);
        self.current = Some((id, map));
        Ok(())
    }

    /// Returns the index of the map of the definition at a position.
    fn read_definition(&mut self, id: u64, at: u64) -> Result<u32> {
        let (body, offset) = definition::read(&mut self.file, at)?;
        if body != self.last {
            let definition = Definition::parse(&body, offset)?;
            if definition.id != id || !definition.is_of(&self.table) {
                return Err(DecodeError::new("a definition that is used is of another table", offset));
            }
            let schema = definition.fitted(&self.table)?;
            let columns = F::columns(&definition, &schema)?;
            let map = definition.map_of(&schema, |index, kind| F::form(&columns, index, kind))?;
            self.columns.push(columns);
            self.maps.push(Arc::new(map));
            self.last = body;
        }
        let map = self.maps.len() as u32 - 1;
        self.known.insert(at, map);
        Ok(map)
    }
}

impl<F: Family> RowScan for RowsScan<F> {
    type At = RowsAt;

    fn table(&self) -> &Arc<TableSchema> {
        &self.table
    }

    fn dialect(&self) -> Dialect {
        Dialect::default()
    }

    fn next_rows(&mut self) -> Result<Option<RowsAt>> {
        self.advance().map_err(|error| error.in_file(&self.path))
    }

    fn map(&self, at: &RowsAt) -> Arc<TableMap> {
        self.maps[at.map as usize].clone()
    }

    fn offset(&self, at: &RowsAt) -> u64 {
        self.file.base() + at.position
    }

    fn commit_us(&self, at: &RowsAt) -> i64 {
        at.commit_us
    }

    fn rows(&mut self, at: &RowsAt, map: &TableMap, direction: Direction) -> Result<RowsEvent<'_>> {
        let Self { file, path, columns, scratch, written, .. } = self;
        let record = file.record(at.position, at.header, direction).map_err(|error| error.in_file(path))?;
        let rows = if record.kind == MESSAGE {
            F::write(&columns[at.map as usize], message_of(&record)?, record.offset, scratch, written)?;
            rewritten_rows(written, record.offset)?
        } else {
            rows_of(&record)?
        };
        rows.check(map)?;
        Ok(rows)
    }

    fn locate(&self, error: DecodeError) -> DecodeError {
        match error.path() {
            Some(_) => error,
            None => error.of(&self.table_name).in_file(&self.path),
        }
    }
}
