//! Encodes parts of a log: transactions in log order to messages of one format.

use std::collections::HashMap;
use std::sync::Arc;

use super::columns::{Chosen, Table};
use super::format::{is_whole, Change, EventFacts, Format};
use super::image::Row;
use super::json_form::whole_images_needed;
use super::messages::Messages;
use super::route::Route;
use super::routing::{self, Hashing};
use super::schema_ids::MessageSchema;
use crate::error::{DecodeError, Result};
use crate::event::{EventKind, FormatDescription};
use crate::json::Style;
use crate::log_order::{
    whole_position, LogOrder, LoggedStatement, Part, Seen, Selection, Survey, Transaction, Walked,
};
use crate::rows::RowsEvent;
use crate::scan::is_dummy;
use crate::schema::TableSchema;
use crate::table_map::TableMap;

/// What comes next in the log.
pub enum Step {
    Messages(Batch),
    /// Statements outside of transactions, or before the rows of the next one.
    Statements(Transaction, Vec<LoggedStatement>),
}

/// Messages, and the transactions that end among them, each with the number of messages up to its end. A
/// large transaction begins in one batch and ends in another.
#[derive(Default)]
pub struct Batch {
    pub messages: Messages,
    pub transactions: Vec<(Transaction, usize)>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.transactions.is_empty() && self.messages.is_empty()
    }
}

pub struct Encoder {
    order: LogOrder,
    waiting: Option<Survey>,
    /// A transaction of which a part has been encoded, the place to go on from, and the text of the present
    /// statement.
    partial: Option<(Survey, Walked, Option<String>)>,
    format: Box<dyn Format>,
    tables: Tables,
    row: Row,
    hashing: Hashing,
    failed: Option<DecodeError>,
}

/// The tables that have been seen, and their definitions.
#[derive(Default)]
struct Tables {
    selection: Selection,
    known: HashMap<(String, String), Arc<TableSchema>>,
    /// Database and name, by the number of the table.
    names: Vec<(String, String)>,
    numbers: HashMap<(String, String), u32>,
    routes: HashMap<(String, String), Route>,
    chosen: HashMap<(String, String), Chosen>,
    /// By table id: the body of the map, and its table. None: it is not wanted.
    maps: HashMap<u64, (Vec<u8>, Option<Arc<Table>>)>,
}

/// Table maps that are remembered. Servers never have so many tables open.
const MAPS_MAX: usize = 20_000;

impl Tables {
    fn note_map(&mut self, seen: &Seen<'_>, format: &FormatDescription) -> Result<()> {
        let event = &seen.event;
        let table_id = event.cursor().uint_le(format.table_id_size(EventKind::TABLE_MAP), "table id")?;
        if self.maps.get(&table_id).is_some_and(|(body, _)| body == event.body) {
            return Ok(());
        }
        let map = TableMap::parse(event, format)?;
        let table = match self.selection.has(map.database.as_bytes(), map.table.as_bytes()) {
            true => {
                let table = self.table(map, event.offset)?;
                let name = (table.database.clone(), table.name.clone());
                let (route, chosen) = (self.routes.get(&name), self.chosen.get(&name));
                Some(Arc::new(table.routed(route).choosing(chosen)))
            }
            false => None,
        };
        if self.maps.len() >= MAPS_MAX {
            self.maps.clear();
        }
        self.maps.insert(table_id, (event.body.to_vec(), table));
        Ok(())
    }

    fn table(&mut self, map: TableMap, offset: u64) -> Result<Table> {
        let name = (map.database.clone(), map.table.clone());
        let number = *self.numbers.entry(name.clone()).or_insert_with(|| {
            self.names.push(name.clone());
            self.names.len() as u32 - 1
        });
        let known = self.known.get(&name);
        let named = map.columns.iter().all(|column| column.name.is_some());
        if known.is_some() && named {
            // A map with names describes its table. The definition says more, if it fits.
            if let Ok(table) = Table::of(map.clone(), known, number, offset) {
                return Ok(table);
            }
            return Table::of(map, None, number, offset);
        }
        Table::of(map, known, number, offset)
    }
}

impl Encoder {
    pub fn new(
        parts: Vec<Part>,
        format: Box<dyn Format>,
        schemas: Vec<TableSchema>,
        selection: Selection,
    ) -> Self {
        let known = schemas
            .into_iter()
            .map(|schema| ((schema.database.clone(), schema.table.clone()), Arc::new(schema)))
            .collect();
        Self {
            order: LogOrder::new(parts, selection.clone()),
            waiting: None,
            partial: None,
            format,
            tables: Tables { selection, known, ..Tables::default() },
            row: Row::default(),
            hashing: Hashing::default(),
            failed: None,
        }
    }

    /// What decides the partition of a table's messages. Before the first step.
    pub fn route(&mut self, database: &str, table: &str, route: Route) {
        self.tables.routes.insert((database.to_owned(), table.to_owned()), route);
    }

    /// The columns of a table's messages. Before the first step.
    pub fn choose(&mut self, database: &str, table: &str, columns: Chosen) {
        self.tables.chosen.insert((database.to_owned(), table.to_owned()), columns);
    }

    /// The schemas of the messages so far, and their ids.
    pub fn schemas(&self) -> &[(MessageSchema, u32)] {
        self.format.schemas()
    }

    /// The database and the name of a table, by the number in `About::Table`.
    pub fn tables(&self) -> &[(String, String)] {
        &self.tables.names
    }

    /// The table's definition from here on. None: there is no such table.
    pub fn define(&mut self, database: &str, table: &str, schema: Option<TableSchema>) {
        let name = (database.to_owned(), table.to_owned());
        match schema {
            Some(schema) => drop(self.tables.known.insert(name, Arc::new(schema))),
            None => drop(self.tables.known.remove(&name)),
        }
        self.tables.maps.clear();
    }

    /// Messages of about `bytes` bytes, or statements. None: at the end. An error comes once, after
    /// everything before it.
    pub fn next_step(&mut self, bytes: usize) -> Result<Option<Step>> {
        let mut batch = Batch::default();
        while batch.messages.bytes.len() < bytes && self.failed.is_none() {
            match self.advance(&mut batch, bytes) {
                Ok(Some(Step::Statements(transaction, statements))) => {
                    return Ok(Some(Step::Statements(transaction, statements)));
                }
                Ok(Some(Step::Messages(_))) => {}
                Ok(None) => break,
                Err(error) => self.failed = Some(error),
            }
            if self.waiting.as_ref().is_some_and(|survey| !survey.statements.is_empty()) {
                break;
            }
        }
        if !batch.is_empty() {
            return Ok(Some(Step::Messages(batch)));
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.waiting.is_some() => self.next_step(bytes),
            None => Ok(None),
        }
    }

    /// Encodes the next transaction, or a part of it. Statements are returned only if the batch is empty;
    /// otherwise they wait.
    fn advance(&mut self, batch: &mut Batch, limit: usize) -> Result<Option<Step>> {
        if let Some((survey, from, query)) = self.partial.take() {
            self.go_on(survey, from, query, (batch, limit))?;
            return Ok(Some(Step::Messages(Batch::default())));
        }
        let Some(mut survey) =
            self.waiting.take().map_or_else(|| self.order.next_group(), |one| Ok(Some(one)))?
        else {
            return Ok(None);
        };
        if !survey.statements.is_empty() {
            if !batch.is_empty() {
                self.waiting = Some(survey);
                return Ok(Some(Step::Messages(Batch::default())));
            }
            let statements = std::mem::take(&mut survey.statements);
            let transaction = survey.transaction.clone();
            // Behind its statements, it has its rows, if there are any.
            if survey.last_rows.is_some() {
                self.waiting = Some(survey);
            }
            return Ok(Some(Step::Statements(transaction, statements)));
        }
        self.go_on(survey, Walked::default(), None, (batch, limit))?;
        Ok(Some(Step::Messages(Batch::default())))
    }

    /// Encodes a transaction from a place on, until the batch has `limit` bytes.
    fn go_on(
        &mut self,
        survey: Survey,
        from: Walked,
        mut query: Option<String>,
        (batch, limit): (&mut Batch, usize),
    ) -> Result<()> {
        if survey.last_rows.is_none() {
            return Ok(());
        }
        let (bytes, entries) = (batch.messages.bytes.len(), batch.messages.entries.len());
        match self.encode(&survey, from, &mut query, (&mut batch.messages, limit)) {
            Ok(Some(place)) => self.partial = Some((survey, place, query)),
            Ok(None) => batch.transactions.push((survey.transaction, batch.messages.len())),
            Err(error) => {
                // Nothing is returned of what was begun here, so that no message is cut.
                batch.messages.bytes.truncate(bytes);
                batch.messages.entries.truncate(entries);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the place to go on from; None: the transaction is complete.
    fn encode(
        &mut self,
        survey: &Survey,
        from: Walked,
        query: &mut Option<String>,
        (out, limit): (&mut Messages, usize),
    ) -> Result<Option<Walked>> {
        let Self { order, format, tables, row, hashing, .. } = self;
        let Some(last) = survey.last_rows else { return Ok(None) };
        let transaction = &survey.transaction;
        if from == Walked::default() {
            format.begin(transaction, out)?;
        }
        let left = order.walk(survey, from, &mut |seen, description| {
            let event = &seen.event;
            match event.header.kind {
                EventKind::TABLE_MAP => tables.note_map(seen, description)?,
                // One byte with a length, which is cut to that byte, is before the text.
                EventKind::ROWS_QUERY => *query = Some(text(event.body.get(1..).unwrap_or_default())),
                EventKind::MARIADB_ANNOTATE_ROWS => *query = Some(text(event.body)),
                _ => {
                    let facts = (transaction, query.as_deref(), seen.number == last);
                    rows(seen, description, facts, tables, (row, hashing), &mut **format, out)?;
                }
            }
            Ok(out.bytes.len() < limit)
        })?;
        if left.is_none() {
            format.end(transaction, out)?;
        }
        Ok(left)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Encodes one row event.
fn rows(
    seen: &Seen<'_>,
    description: &FormatDescription,
    (transaction, query, is_last): (&Transaction, Option<&str>, bool),
    tables: &Tables,
    (row, hashing): (&mut Row, &mut Hashing),
    format: &mut dyn Format,
    out: &mut Messages,
) -> Result<()> {
    let event = &seen.event;
    let mut rows = RowsEvent::parse(event, description)?;
    if rows.images.is_empty() && is_dummy(rows.table_id) {
        return Ok(());
    }
    let Some((_, table)) = tables.maps.get(&rows.table_id) else {
        let reason = format!("a row event of table id {}, for which there was no table map", rows.table_id);
        return Err(DecodeError::new(reason, event.offset));
    };
    let Some(table) = table else { return Ok(()) };
    rows.check(&table.map)?;
    if format.needs_whole_images() && !is_whole(&rows, table) {
        return Err(whole_images_needed(table, event.offset));
    }
    let facts = EventFacts {
        kind: rows.kind,
        timestamp: event.header.timestamp,
        server_id: event.header.server_id,
        position: position_of(seen, transaction),
        bytes: event.header.size,
        table_id: rows.table_id,
        query,
        style: Style::of(description),
        snapshot: None,
    };
    format.event(transaction, &facts, table)?;
    let (mut number, mut open) = (0, true);
    while !rows.images.is_empty() {
        let start = rows.images;
        row.read(&mut rows, &table.map)?;
        row.omit(&table.omitted);
        if rows.images.position() == start.position() {
            return Err(start.fail(format!("a row event of {} with rows of no length", table.map.name())));
        }
        let sequence = if seen.packed { event.offset } else { start.offset() };
        let last = is_last && rows.images.is_empty();
        let change = Change { kind: rows.kind, row, bytes: event.body, number, sequence, last };
        match &table.route {
            None => format.change(table, &change, out),
            Some(route) => {
                let of = (&**table, transaction, &facts);
                routing::change(route, of, &change, format, (&mut open, hashing), out)
            }
        }
        .map_err(|error| error.moved(sequence))?;
        number += 1;
    }
    if open {
        format.end_event(table, out);
    }
    Ok(())
}

/// The event's first byte in the source's file.
fn position_of(seen: &Seen<'_>, transaction: &Transaction) -> u64 {
    let header = &seen.event.header;
    if seen.packed || header.end_position == 0 {
        // As far behind the transaction's begin as in this file.
        return transaction.position + seen.event.offset.saturating_sub(transaction.start);
    }
    whole_position(transaction.position, header.end_position.wrapping_sub(header.size))
}
