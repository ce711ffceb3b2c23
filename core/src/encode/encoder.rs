//! Encodes parts of a log: transactions in log order to messages of one format.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::columns::Chosen;
use super::format::{check_images, Change, EventFacts, Format};
use super::image::Row;
use super::messages::Messages;
use super::pieces::{CollectedRows, Pieces};
use super::route::Route;
use super::routing::{self, Hashing};
use super::ruled::Ruled;
use super::schema_ids::MessageSchema;
use super::tables::{next_row, LastRow, Tables};
use crate::error::{DecodeError, Result};
use crate::row_log::{Item, LoggedRows, Transactions};
use crate::schema::TableSchema;
use crate::transaction::{LoggedStatement, Selection, Survey, Transaction, Walked};

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
    order: Box<dyn Transactions>,
    waiting: Option<Survey>,
    /// A transaction of which a part has been encoded, the place to go on from, and the text of the present
    /// statement.
    partial: Option<(Survey, Walked, Option<String>)>,
    format: Box<dyn Format>,
    tables: Tables,
    row: Row,
    hashing: Hashing,
    failed: Option<DecodeError>,
    /// If there are rules for tables: the part of the log whose rows the rules have had.
    pieces: Option<Box<Pieces>>,
}

impl Encoder {
    pub fn new(
        order: Box<dyn Transactions>,
        format: Box<dyn Format>,
        schemas: Vec<TableSchema>,
        selection: Selection,
    ) -> Self {
        let known = schemas
            .into_iter()
            .map(|schema| ((schema.database.clone(), schema.table.clone()), Arc::new(schema)))
            .collect();
        Self {
            order,
            waiting: None,
            partial: None,
            format,
            tables: Tables { selection, known, ..Tables::default() },
            row: Row::default(),
            hashing: Hashing::default(),
            failed: None,
            pieces: None,
        }
    }

    /// What decides the partition of a table's messages. Before the first step.
    pub fn route(&mut self, database: &str, table: &str, route: Route) {
        self.tables.routes.insert((database.to_owned(), table.to_owned()), route);
    }

    /// What rules make of a table's rows. Before the first step. Then each piece of the log is collected,
    /// changed (`apply`) and read.
    pub fn rule(&mut self, database: &str, table: &str, rules: Ruled) {
        self.tables.rules.insert((database.to_owned(), table.to_owned()), Arc::new(rules));
        self.pieces.get_or_insert_default();
    }

    /// See `Pieces::collect`. Steps then return the messages of this piece.
    pub fn collect(&mut self, bytes: usize) -> Result<Option<Vec<CollectedRows>>> {
        let Self { order, tables, row, format, pieces, .. } = self;
        pieces.get_or_insert_default().collect(&mut **order, tables, row, &**format, bytes)
    }

    /// See `Pieces::apply`.
    pub fn apply(&mut self, name: &(String, String), batch: RecordBatch) -> Result<()> {
        self.pieces.get_or_insert_default().apply(name, batch)
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

    /// The table's definition from here on. None: there is no such table. Not `certain`: it is used only
    /// where the log has names to compare with.
    pub fn define(&mut self, database: &str, table: &str, schema: Option<TableSchema>, certain: bool) {
        let name = (database.to_owned(), table.to_owned());
        match certain {
            true => drop(self.tables.uncertain.remove(&name)),
            false => drop(self.tables.uncertain.insert(name.clone())),
        }
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
        if self.pieces.is_some() {
            return self.advance_piece(batch, limit);
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

    /// Encodes the next transaction of a piece, or a part of it.
    fn advance_piece(&mut self, batch: &mut Batch, limit: usize) -> Result<Option<Step>> {
        let Some(pieces) = &mut self.pieces else { return Ok(None) };
        let Some(stretch) = pieces.next_stretch() else { return Ok(None) };
        let (mut begun, mut query) = (pieces.begun, pieces.query.take());
        let bounds = (stretch.until, pieces.last);
        let left =
            self.encode(&stretch.survey, stretch.from, bounds, (&mut query, &mut begun), (batch, limit))?;
        if let Some(pieces) = &mut self.pieces {
            (pieces.begun, pieces.query) = (begun, query);
            match left {
                Some(place) => pieces.go_on(stretch, place),
                None if begun => {
                    batch.transactions.push((stretch.survey.transaction, batch.messages.len()));
                }
                None => {}
            }
        }
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
        let Some(last) = survey.last_rows else { return Ok(()) };
        let (bytes, entries) = (batch.messages.bytes.len(), batch.messages.entries.len());
        let mut begun = from != Walked::default();
        if !begun {
            self.format.begin(&survey.transaction, &mut batch.messages)?;
            begun = true;
        }
        match self.encode(&survey, from, (None, (last, None)), (&mut query, &mut begun), (batch, limit)) {
            Ok(Some(place)) => self.partial = Some((survey, place, query)),
            Ok(None) => batch.transactions.push((survey.transaction, batch.messages.len())),
            Err(error) => {
                // Nor is a transaction's begin returned without what follows it.
                batch.messages.bytes.truncate(bytes);
                batch.messages.entries.truncate(entries);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Encodes the rows of a transaction up to the event with the number `until`. Returns the place to go on
    /// from; None: the transaction is complete. `begun`: the format knows of the transaction.
    fn encode(
        &mut self,
        survey: &Survey,
        from: Walked,
        (until, last): (Option<u64>, LastRow),
        (query, begun): (&mut Option<String>, &mut bool),
        (batch, limit): (&mut Batch, usize),
    ) -> Result<Option<Walked>> {
        let Self { order, format, tables, row, hashing, pieces, .. } = self;
        let (transaction, out) = (&survey.transaction, &mut batch.messages);
        let (bytes, entries) = (out.bytes.len(), out.entries.len());
        let walked = order.walk(survey, from, &mut |number, item| {
            match item {
                Item::Definition(definition) => tables.note_map(*definition)?,
                Item::Query(text) => *query = Some(String::from_utf8_lossy(text).into_owned()),
                Item::Rows(logged) => {
                    let facts = (transaction, query.as_deref(), last);
                    let memory = (&mut *row, &mut *hashing, pieces.as_deref_mut());
                    rows(logged, facts, tables, memory, &mut **format, (&mut *begun, out))?;
                }
            }
            Ok(out.bytes.len() < limit && until.is_none_or(|until| number < until))
        });
        match walked {
            Ok(None) if *begun => {
                format.end(transaction, out)?;
                Ok(None)
            }
            Err(error) => {
                // Nothing is returned of what was begun here, so that no message is cut.
                out.bytes.truncate(bytes);
                out.entries.truncate(entries);
                Err(error)
            }
            walked => walked,
        }
    }
}

/// Encodes rows that the log has together.
fn rows(
    logged: &LoggedRows<'_>,
    (transaction, query, last): (&Transaction, Option<&str>, LastRow),
    tables: &Tables,
    (row, hashing, pieces): (&mut Row, &mut Hashing, Option<&mut Pieces>),
    format: &mut dyn Format,
    (begun, out): (&mut bool, &mut Messages),
) -> Result<()> {
    let mut rows = logged.rows;
    let Some(wanted) = tables.of(rows.table_id, logged.offset)? else { return Ok(()) };
    let table = &wanted.table;
    rows.check(&table.map)?;
    check_images(&rows, table, format, logged.offset)?;
    let facts = EventFacts {
        kind: rows.kind,
        timestamp: logged.timestamp,
        server_id: logged.server_id,
        position: logged.position,
        bytes: logged.size,
        table_id: rows.table_id,
        query,
        style: logged.json,
        snapshot: None,
    };
    if let (Some(ruled), Some(pieces)) = (&wanted.ruled, pieces) {
        let of = (transaction, facts, last);
        return pieces.write(logged, &mut rows, (table, ruled), of, (row, hashing), format, (begun, out));
    }
    if !*begun {
        format.begin(transaction, out)?;
        *begun = true;
    }
    let is_last = logged.number == last.0;
    format.event(transaction, &facts, table)?;
    let (mut number, mut open) = (0, true);
    while !rows.images.is_empty() {
        let sequence = next_row(logged, &mut rows, table, row)?;
        format.fill(&rows, (rows.kind, table), row, logged.bytes);
        let last = is_last && rows.images.is_empty();
        let change = Change { kind: rows.kind, row, bytes: logged.bytes, number, sequence, last };
        match &table.route {
            None => format.change(table, &change, out),
            Some(route) => {
                let of = (table, transaction, &facts);
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
