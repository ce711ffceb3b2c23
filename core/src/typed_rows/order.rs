//! Whole transactions in the order of the log.

use std::collections::HashMap;
use std::sync::Arc;

use super::family::Family;
use super::{
    begin_of, id_of, message_of, rewritten_rows, rows_of, statement_of, undefined, unexpected, Definition,
    BEGIN, COMMIT, DEFINITION, MESSAGE, NOTE, ROWS, STATEMENT,
};
use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::parts::{OpenPart, Parts};
use crate::records::{Record, RecordFile};
use crate::row_log::{self, Item, LoggedRows, Take};
use crate::rows::RowsEvent;
use crate::schema::TableSchema;
use crate::source_names::SourceNames;
use crate::table_map::TableMap;
use crate::transaction::{LoggedStatement, Part, Selection, Survey, Transaction, Walked};
use crate::window::Direction;

/// The transactions of some parts, one after the other.
pub type RowsOrder<F> = Parts<Open<F>>;

pub struct Open<F: Family> {
    /// The tables that are asked for, once a transaction was surveyed. The rows of others are not read.
    selection: Option<Selection>,
    /// How the rows of the definitions are read that the walk has come by.
    columns: HashMap<u64, F::Columns>,
    scratch: F::Scratch,
    written: Vec<u8>,
    part: Arc<Part>,
    file: RecordFile,
    names: SourceNames,
    position: u64,
    end: u64,
}

impl<F: Family> OpenPart for Open<F> {
    fn open(part: Arc<Part>) -> Result<Self> {
        let mut file = RecordFile::open(&part.file, part.base, F::NAME)?;
        let end = part.end()?;
        file.read_to(end);
        let names = part.names.clone();
        Ok(Self {
            position: part.start.max(file.start()),
            file,
            names,
            end,
            part,
            selection: None,
            columns: HashMap::new(),
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
                    found.file.push_str(self.names.place(record.offset, record.place as u32).0);
                    found.position = record.place;
                }
                DEFINITION if number > 1 => {
                    let definition = Definition::parse(&record)?;
                    defined.retain(|(id, _)| *id != definition.id);
                    let (database, table) = (definition.database.as_bytes(), definition.table.as_bytes());
                    defined.push((definition.id, selection.has(database, table)));
                }
                STATEMENT if number > 1 => statements.push(statement(&record, found.commit_us)?),
                NOTE => {}
                COMMIT if number > 1 => {
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
        if position == survey.start {
            self.columns.clear();
        }
        while position < survey.end && number < last {
            let header = self.file.header(position, survey.end)?;
            number += 1;
            let mut more = true;
            if matches!(header.kind, DEFINITION | ROWS | MESSAGE) {
                let Self { file, columns, scratch, written, selection, .. } = self;
                let record = file.record(position, header, Direction::Forward)?;
                more = match record.kind {
                    DEFINITION => {
                        let definition = Definition::parse(&record)?;
                        columns.remove(&definition.id);
                        if is_wanted(selection.as_ref(), &definition) {
                            columns.insert(definition.id, F::columns(&definition, &definition.schema()?)?);
                        }
                        take(number, &Item::Definition(&Logged(&record, definition)))?
                    }
                    MESSAGE => match columns.get(&id_of(record.body, record.offset)?) {
                        None => true,
                        Some(columns) => {
                            F::write(columns, message_of(&record)?, record.offset, scratch, written)?;
                            let rows = rewritten_rows(written, record.offset)?;
                            take(
                                number,
                                &Item::Rows(logged(&record, rows, written, number, &survey.transaction)),
                            )?
                        }
                    },
                    _ => {
                        let rows = rows_of(&record)?;
                        take(
                            number,
                            &Item::Rows(logged(&record, rows, record.body, number, &survey.transaction)),
                        )?
                    }
                };
            }
            position += header.size;
            if !more && number < last {
                return Ok(Some(Walked { position, number }));
            }
        }
        Ok(None)
    }
}

fn is_wanted(selection: Option<&Selection>, definition: &Definition<'_>) -> bool {
    selection.is_none_or(|all| all.has(definition.database.as_bytes(), definition.table.as_bytes()))
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

/// A definition, with its record.
struct Logged<'a>(&'a Record<'a>, Definition<'a>);

impl row_log::Definition for Logged<'_> {
    fn id(&self) -> Result<u64> {
        Ok(self.1.id)
    }

    fn bytes(&self) -> &[u8] {
        self.0.body
    }

    fn names(&self) -> Result<(&[u8], &[u8])> {
        Ok((self.1.database.as_bytes(), self.1.table.as_bytes()))
    }

    fn table(&self) -> Result<(TableMap, Option<TableSchema>)> {
        let schema = self.1.schema()?;
        Ok((self.1.map_of(&schema)?, Some(schema)))
    }

    fn offset(&self) -> u64 {
        self.0.offset
    }
}
