//! The tables whose rows are encoded, by the table maps of the log.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::columns::{Chosen, Table};
use super::image::Row;
use super::route::Route;
use super::ruled::{Ruled, RuledTable};
use crate::error::{DecodeError, Result};
use crate::row_log::{Definition, LoggedRows};
use crate::rows::RowsEvent;
use crate::schema::TableSchema;
use crate::table_map::TableMap;
use crate::table_name;
use crate::transaction::Selection;

/// The last row of a transaction that is encoded: the number of its event, and its own in that (None: it is
/// the last one).
pub type LastRow = (u64, Option<u32>);

/// The tables that have been seen, and their definitions.
#[derive(Default)]
pub struct Tables {
    pub selection: Selection,
    pub known: HashMap<(String, String), Arc<TableSchema>>,
    /// Tables whose definitions are only used if the log's names agree.
    pub uncertain: HashSet<(String, String)>,
    /// Database and name, by the number of the table.
    pub names: Vec<(String, String)>,
    pub numbers: HashMap<(String, String), u32>,
    pub routes: HashMap<(String, String), Route>,
    pub chosen: HashMap<(String, String), Chosen>,
    pub rules: HashMap<(String, String), Arc<Ruled>>,
    /// For each table id, the body of the map, and the table. None: the table is not wanted.
    pub maps: HashMap<u64, (Vec<u8>, Option<Arc<Wanted>>)>,
}

/// A table whose rows are encoded. `ruled`: what rules make of them. None: there are no rules for it.
pub struct Wanted {
    pub table: Table,
    pub ruled: Option<RuledTable>,
}

/// Table maps that are remembered. Servers never have so many tables open.
const MAPS_MAX: usize = 20_000;

impl Tables {
    pub fn note_map(&mut self, definition: &dyn Definition) -> Result<()> {
        let table_id = definition.id()?;
        if self.maps.get(&table_id).is_some_and(|(bytes, _)| bytes == definition.bytes()) {
            return Ok(());
        }
        let (database, name) = definition.names()?;
        let table = match self.selection.has(database, name) {
            true => {
                let shown = |bytes| String::from_utf8_lossy(bytes);
                let of = |error: DecodeError| error.of(&table_name::text(&shown(database), &shown(name)));
                let (map, schema) = definition.table().map_err(of)?;
                let table = self.table(map, schema, definition.offset())?;
                let name = (table.database.clone(), table.name.clone());
                let (route, chosen) = (self.routes.get(&name), self.chosen.get(&name));
                let table = table.routed(route).choosing(chosen);
                let ruled = self.rules.get(&name).map(|rules| rules.of(&table, route)).transpose()?;
                Some(Arc::new(Wanted { table, ruled }))
            }
            false => None,
        };
        if self.maps.len() >= MAPS_MAX {
            self.maps.clear();
        }
        self.maps.insert(table_id, (definition.bytes().to_vec(), table));
        Ok(())
    }

    fn table(&mut self, map: TableMap, schema: Option<TableSchema>, offset: u64) -> Result<Table> {
        let name = (map.database.clone(), map.table.clone());
        let number = *self.numbers.entry(name.clone()).or_insert_with(|| {
            self.names.push(name.clone());
            self.names.len() as u32 - 1
        });
        if let Some(schema) = schema {
            return Table::fitting(map, Arc::new(schema), number, offset);
        }
        let named = map.columns.iter().all(|column| column.name.is_some());
        let known = self.known.get(&name).filter(|_| named || !self.uncertain.contains(&name));
        if known.is_some() && named {
            // A map with names describes its table. The definition says more, if it fits. Rules were compiled
            // for the definition.
            match Table::of(map.clone(), known, number, offset) {
                Err(error) if self.rules.contains_key(&name) => return Err(error),
                Err(_) => return Table::of(map, None, number, offset),
                fits => return fits,
            }
        }
        Table::of(map, known, number, offset)
    }

    /// The table of a row event. None: it is not wanted.
    pub fn of(&self, table_id: u64, offset: u64) -> Result<Option<&Wanted>> {
        match self.maps.get(&table_id) {
            Some((_, wanted)) => Ok(wanted.as_deref()),
            None => {
                let reason = format!("a row event of table id {table_id}, for which there was no table map");
                Err(DecodeError::new(reason, offset))
            }
        }
    }
}

/// Cuts the images of the next row. Returns its offset in the log. `logged`: what `rows` are of.
#[inline]
pub fn next_row(
    logged: &LoggedRows<'_>,
    rows: &mut RowsEvent<'_>,
    table: &Table,
    row: &mut Row,
) -> Result<u64> {
    let start = rows.images;
    row.read(rows, &table.map).map_err(|error| error.of(&table.map.name()))?;
    row.omit(&table.omitted);
    if rows.images.position() == start.position() {
        return Err(start.fail(format!("a row event of {} with rows of no length", table.map.name())));
    }
    Ok(if logged.packed || rows.record.is_some() { logged.offset } else { start.offset() })
}
