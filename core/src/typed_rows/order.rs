//! Whole transactions in the order of the log.

use std::collections::HashMap;
use std::sync::Arc;

use super::family::Family;
use super::{
    begin_of, definition, id_of, message_of, rewritten_rows, rows_of, statement_of, undefined, unexpected,
    Definition, Named, BEGIN, COMMIT, DEFINITION, MESSAGE, NOTE, ROWS, STATEMENT, USE,
};
use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::parts::{OpenPart, Parts};
use crate::records::{Header, Record, RecordFile};
use crate::row_log::{self, Item, LoggedRows, Take};
use crate::rows::RowsEvent;
use crate::schema::TableSchema;
use crate::table_map::TableMap;
use crate::transaction::{LoggedStatement, Part, Selection, Survey, Transaction, Walked};
use crate::window::Direction;

/// The transactions of some parts, one after the other.
pub type RowsOrder<F> = Parts<Open<F>>;

/// A definition that was read.
struct Held<F: Family> {
    body: Vec<u8>,
    offset: u64,
    columns: F::Columns,
}

pub struct Open<F: Family> {
    /// The tables that are asked for, once a transaction was surveyed. The rows of others are not read.
    selection: Option<Selection>,
    /// The definitions that a walk has come by, by their positions.
    held: HashMap<u64, Held<F>>,
    /// For each id that the walked transaction has defined, the definition's position. None: its rows are not
    /// wanted.
    defined: HashMap<u64, Option<u64>>,
    /// Where the transaction begins whose definitions these are.
    walked: Option<u64>,
    scratch: F::Scratch,
    written: Vec<u8>,
    part: Arc<Part>,
    file: RecordFile,
    position: u64,
    end: u64,
}

impl<F: Family> OpenPart for Open<F> {
    fn open(part: Arc<Part>) -> Result<Self> {
        let mut file = RecordFile::open(&part.file, part.base, F::NAME)?;
        let end = part.end()?;
        file.read_to(end);
        Ok(Self {
            position: part.start.max(file.start()),
            file,
            end,
            part,
            selection: None,
            held: HashMap::new(),
            defined: HashMap::new(),
            walked: None,
            scratch: F::Scratch::default(),
            written: Vec::new(),
        })
    }

    fn part(&self) -> &Part {
        &self.part
    }

    fn survey(&mut self, selection: &Selection) -> Result<Option<Survey>> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.selection.get_or_insert_with(|| selection.clone());
        let (start, base) = (self.position, self.file.base());
        let mut found = Transaction { start: base + start, commit_is_exact: true, ..Transaction::default() };
        let (mut statements, mut last_rows, mut number) = (Vec::new(), None, 0);
        // The definitions of the transaction, and whether they are wanted.
        let mut defined: Vec<(u64, bool)> = Vec::new();
        while self.position < self.end {
            let position = self.position;
            let header = self.file.header(position, self.end)?;
            self.position = position + header.size;
            number += 1;
            let record = self.file.record(position, header, Direction::Forward)?;
            if matches!(header.kind, ROWS | MESSAGE) {
                let id = id_of(record.body, record.offset)?;
                match defined.iter().find(|(known, _)| *known == id) {
                    Some((_, wanted)) if *wanted => last_rows = Some(number),
                    Some(_) => {}
                    None => return Err(undefined(&record)),
                }
                continue;
            }
            match record.kind {
                BEGIN if number == 1 => {
                    let (commit_us, id) = begin_of(&record)?;
                    (found.commit_us, found.gtid) = (commit_us as u64, Some(id.to_owned()));
                    found.position = record.place;
                }
                DEFINITION | USE if number > 1 => {
                    let named = Named::parse(&record)?;
                    defined.retain(|(id, _)| *id != named.id);
                    defined
                        .push((named.id, selection.has(named.database.as_bytes(), named.table.as_bytes())));
                }
                STATEMENT if number > 1 => statements.push(statement(&record, found.commit_us)?),
                NOTE => {}
                COMMIT if number > 1 => {
                    if F::COMMITS_SAY_PLACES {
                        found.end_event.position = record.place;
                    }
                    found.end = base + self.position;
                    let part = self.part.clone();
                    let ends = (start, self.position);
                    return Ok(Some(Survey::plain(found, statements, last_rows, part, ends)));
                }
                _ => return Err(unexpected(&record)),
            }
        }
        Err(DecodeError::new("the log ends inside a transaction", base + start))
    }

    fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>> {
        let Some(last) = survey.last_rows else { return Ok(None) };
        let (mut position, mut number) = (survey.start.max(from.position), from.number);
        if position == survey.start || self.walked != Some(survey.start) {
            self.defined.clear();
            self.walked = Some(survey.start);
            self.define_up_to(survey.start, position)?;
        }
        while position < survey.end && number < last {
            let header = self.file.header(position, survey.end)?;
            number += 1;
            let more = match header.kind {
                DEFINITION | USE => match self.define(position, header)? {
                    Some(held) => take(number, &Item::Definition(held))?,
                    None => true,
                },
                ROWS | MESSAGE => {
                    let Self { file, held, defined, scratch, written, .. } = self;
                    let record = file.record(position, header, Direction::Forward)?;
                    let at = defined.get(&id_of(record.body, record.offset)?);
                    match (record.kind, at.ok_or_else(|| undefined(&record))?) {
                        (_, None) => true,
                        (MESSAGE, Some(at)) => {
                            let columns = &held.get(at).ok_or_else(|| undefined(&record))?.columns;
                            F::write(columns, message_of(&record)?, record.offset, scratch, written)?;
                            let rows = rewritten_rows(written, record.offset)?;
                            let rows = logged(&record, rows, written, number, &survey.transaction);
                            take(number, &Item::Rows(rows))?
                        }
                        _ => {
                            let rows = rows_of(&record)?;
                            let rows = logged(&record, rows, record.body, number, &survey.transaction);
                            take(number, &Item::Rows(rows))?
                        }
                    }
                }
                _ => true,
            };
            position += header.size;
            if !more && number < last {
                return Ok(Some(Walked { position, number }));
            }
        }
        Ok(None)
    }
}

impl<F: Family> Open<F> {
    /// Notes the definitions of a transaction before a position, where the walk goes on.
    fn define_up_to(&mut self, start: u64, end: u64) -> Result<()> {
        let mut position = start;
        while position < end {
            let header = self.file.header(position, end)?;
            if matches!(header.kind, DEFINITION | USE) {
                self.define(position, header)?;
            }
            position += header.size;
        }
        Ok(())
    }

    /// Notes which definition holds from a position on. None: the table's rows are not wanted.
    fn define(&mut self, position: u64, header: Header) -> Result<Option<&Held<F>>> {
        let record = self.file.record(position, header, Direction::Forward)?;
        let named = Named::parse(&record)?;
        let (id, at) = (named.id, named.at.unwrap_or(position));
        let (database, table) = (named.database.as_bytes(), named.table.as_bytes());
        if !self.selection.as_ref().is_none_or(|all| all.has(database, table)) {
            self.defined.insert(id, None);
            return Ok(None);
        }
        self.defined.insert(id, Some(at));
        if !self.held.contains_key(&at) {
            let (body, offset) = definition::read(&mut self.file, at)?;
            let definition = Definition::parse(&body, offset)?;
            if definition.id != id {
                return Err(DecodeError::new("a definition that is used is of another table", offset));
            }
            let columns = F::columns(&definition, &definition.schema()?)?;
            self.held.insert(at, Held { body, offset, columns });
        }
        Ok(self.held.get(&at))
    }
}

/// `bytes`: those that the cursor of `rows` is over.
fn logged<'a>(
    record: &Record<'_>,
    rows: RowsEvent<'a>,
    bytes: &'a [u8],
    number: u64,
    transaction: &Transaction,
) -> LoggedRows<'a> {
    LoggedRows {
        rows,
        bytes,
        number,
        offset: record.offset,
        packed: false,
        position: record.place,
        size: record.raw.len() as u32,
        timestamp: (transaction.commit_us / 1_000_000) as u32,
        server_id: 0,
        json: Style::default(),
    }
}

fn statement(record: &Record<'_>, commit_us: u64) -> Result<LoggedStatement> {
    let (database, json) = statement_of(record)?;
    Ok(LoggedStatement {
        database: database.to_owned(),
        sql: json.to_owned(),
        event: None,
        timestamp: (commit_us / 1_000_000) as u32,
        server_id: 0,
        sql_mode: None,
        server_charset: None,
        position: record.place,
        end_position: record.place,
    })
}

impl<F: Family> row_log::Definition for Held<F> {
    fn id(&self) -> Result<u64> {
        id_of(&self.body, self.offset)
    }

    fn bytes(&self) -> &[u8] {
        &self.body
    }

    fn names(&self) -> Result<(&[u8], &[u8])> {
        let Definition { database, table, .. } = Definition::parse(&self.body, self.offset)?;
        Ok((database.as_bytes(), table.as_bytes()))
    }

    fn table(&self) -> Result<(TableMap, Option<TableSchema>)> {
        let definition = Definition::parse(&self.body, self.offset)?;
        let schema = definition.schema()?;
        let map = definition.map_of(&schema, |index, kind| F::form(&self.columns, index, kind))?;
        Ok((map, Some(schema)))
    }

    fn offset(&self) -> u64 {
        self.offset
    }
}
