//! What a format of messages does, and what it is given.

use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::rows::RowsEvent;
use crate::rows::RowsKind;
use crate::transaction::Transaction;

use super::columns::Table;
use super::image::{Image, Row};
use super::messages::Messages;
use super::schema_ids::MessageSchema;
use super::source_info::Source;

/// One row of a row event.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    pub kind: RowsKind,
    pub row: &'a Row,
    pub bytes: &'a [u8],
    /// The row's number in its event, from 0.
    pub number: u32,
    /// Offset of the row's image in the log.
    pub sequence: u64,
    /// Whether it is the last row of its transaction that is encoded.
    pub last: bool,
}

impl<'a> Change<'a> {
    /// The row before an update or a deletion.
    pub fn before(&self) -> Option<Image<'a>> {
        let is_there = self.kind != RowsKind::Insert && !self.row.before.is_empty();
        is_there.then_some(self.row.image(&self.row.before, self.bytes))
    }

    /// The row after an insert or an update.
    pub fn after(&self) -> Option<Image<'a>> {
        (self.kind != RowsKind::Delete).then_some(self.row.image(&self.row.after, self.bytes))
    }

    /// The row that identifies the change: after it, or before a deletion.
    pub fn newest(&self) -> Image<'a> {
        match self.kind {
            RowsKind::Delete => self.row.image(&self.row.before, self.bytes),
            _ => self.row.image(&self.row.after, self.bytes),
        }
    }
}

/// What all rows of an event share.
#[derive(Clone, Copy)]
pub struct EventFacts<'a> {
    pub kind: RowsKind,
    /// When the statement began, in seconds since 1970.
    pub timestamp: u32,
    pub server_id: u32,
    /// The event's first byte in the source's file.
    pub position: u64,
    /// Bytes of the event, and the number of its table in the log.
    pub bytes: u32,
    pub table_id: u64,
    /// The statement, if the log has it (`binlog_rows_query_log_events`).
    pub query: Option<&'a str>,
    /// How the server prints JSON.
    pub style: Style,
    /// The rows were read by a snapshot: what `source.snapshot` of Debezium's messages says of them.
    pub snapshot: Option<&'a str>,
}

impl<'a> EventFacts<'a> {
    /// Where the rows come from.
    pub fn source(&self, transaction: &'a Transaction, table: &'a Table) -> Source<'a> {
        Source {
            transaction,
            position: self.position,
            server_id: self.server_id,
            query: self.query,
            catalog: &table.schema.catalog,
            database: &table.database,
            table: &table.name,
        }
    }
}

/// A format of messages.
pub trait Format: Send + Sync {
    /// Before the first row of a transaction.
    fn begin(&mut self, _transaction: &Transaction, _out: &mut Messages) -> Result<()> {
        Ok(())
    }

    /// Before the rows of an event.
    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()>;

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()>;

    /// Behind the last row of an event.
    fn end_event(&mut self, _table: &Table, _out: &mut Messages) {}

    /// Behind the last row of a transaction.
    fn end(&mut self, _transaction: &Transaction, _out: &mut Messages) -> Result<()> {
        Ok(())
    }

    /// The schemas of the messages so far, and their ids.
    fn schemas(&self) -> &[(MessageSchema, u32)] {
        &[]
    }

    /// Whether messages say which row is the last of its transaction.
    fn needs_last(&self) -> bool {
        false
    }

    /// Whether images must have all columns.
    fn needs_whole_images(&self) -> bool {
        true
    }

    /// What stands for a long value that an update left alone, if images must have all columns. None: such an
    /// update is refused.
    fn placeholder(&self) -> Option<&[u8]> {
        None
    }
}

impl dyn Format + '_ {
    /// Gives images of a row that lack columns what messages have in their place. `kind`: what the row's
    /// message is about.
    pub fn fill(&self, rows: &RowsEvent<'_>, (kind, table): (RowsKind, &Table), row: &mut Row, bytes: &[u8]) {
        if !rows.identity_only || !self.needs_whole_images() {
            return;
        }
        row.fill_identity(bytes, kind, |index| !table.columns[index].schema.nullable);
        if rows.kind == RowsKind::Update && !rows.present_after.is_full() {
            row.fill_unavailable(self.placeholder().unwrap_or_default());
        }
    }
}

/// Refuses a row event whose images lack columns that messages need: those of the key, or if the format
/// needs whole images, all. An image after an update may lack those that the image before it has.
pub fn check_images(rows: &RowsEvent<'_>, table: &Table, format: &dyn Format, offset: u64) -> Result<()> {
    if rows.present.is_full() && rows.present_after.is_full() {
        return Ok(());
    }
    let (whole, fills) = (format.needs_whole_images(), format.placeholder().is_some());
    let after = |index: &usize| {
        rows.present_after.has(*index) || rows.absent_is_unchanged && rows.present.has(*index)
    };
    let all = |has: &dyn Fn(usize) -> bool| (0..table.columns.len()).all(has);
    if rows.identity_only {
        let filled = |index: usize| fills && table.columns[index].takes_placeholder();
        if whole && rows.kind == RowsKind::Update && !all(&|index| after(&index) || filled(index)) {
            return Err(value_missing(table, offset));
        }
    } else if whole && !all(&|index| rows.present.has(index) && after(&index)) {
        return Err(images_lack(table, "columns; this format needs", offset));
    }
    if !table.key.iter().all(after) {
        return Err(images_lack(table, "columns of its key; messages need", offset));
    }
    Ok(())
}

#[cold]
fn value_missing(table: &Table, offset: u64) -> DecodeError {
    let name = table.schema.name();
    let reason = format!(
        "an update of {name} left a long value alone, which the log does not have; this format needs \
         ALTER TABLE {name} REPLICA IDENTITY FULL"
    );
    DecodeError::of_table(name, reason, offset)
}

#[cold]
fn images_lack(table: &Table, what: &str, offset: u64) -> DecodeError {
    let name = table.schema.name();
    let reason = format!(
        "row images of {name} lack {what} binlog_row_image = FULL, and no generated columns in MariaDB, \
         which leaves them out of updates"
    );
    DecodeError::of_table(name, reason, offset)
}
