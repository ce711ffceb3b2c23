//! The segment format `rows`: Penstock's own, for sources that have no binary log of their own.
//!
//! A segment is a file of records (`records`). Its transactions say how their rows are written, so that a
//! reader can begin at any of them. A definition is once in each span of the
//! index; later transactions of the span refer to it:
//!
//! | kind | body |
//! |---|---|
//! | `b` begin | commit time in microseconds since 1970 (8 bytes), then the transaction's id (`series`) |
//! | `d` definition | id (4), database, table (length of 2 before each), then JSON: `key`, `columns` |
//! | `u` use | id (4), position in the file of the definition that holds here, too (8), database, table |
//! | `r` rows | id of the definition (4), kind (1), number of columns (2), which columns, images |
//! | `w` message | id of the definition (4), then a row as `pgoutput` has sent it (only in its format) |
//! | `s` statement | name of the database (length of 2 bytes), then JSON: what happens to a table |
//! | `n` note | what the receiver must know again after a restart; readers skip it |
//! | `c` commit | nothing |
//!
//! Which columns images have are bits: of the first images and, of updates, of the second ones. An image
//! has a bit for each of its columns (1: null), then the values of the others, in the forms that
//! `wire::form` says. The fields of `columns` are those of `penstock.model.schema.Column`.
//!
//! A statement counts where its transaction ends, and is the only one there.
//!
//! A transaction, and what a receiver gives to the framer at once, is whole. So parts of this format begin
//! and end between transactions.

pub mod definition;
mod family;
mod framer;
mod order;
mod scan;
mod segments;
mod series;
mod tracker;
pub mod write;

pub use definition::{Definition, Named};
pub use family::{Family, Own};
pub use framer::RowsFramer;
pub use order::RowsOrder;
pub use scan::RowsScan;
pub use segments::{Records, TypedRows};
pub use series::{Id, SeriesSet};
pub use tracker::Tracker;

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::records::Record;
use crate::rows::RowsKind;
use crate::rows::{Present, RowsEvent};

pub const NAME: &str = "rows";
pub const BEGIN: u8 = b'b';
pub const DEFINITION: u8 = b'd';
pub const USE: u8 = b'u';
pub const ROWS: u8 = b'r';
/// A row as the source's output plugin has sent it (`pgoutput`).
pub const MESSAGE: u8 = b'w';
pub const STATEMENT: u8 = b's';
pub const NOTE: u8 = b'n';
pub const COMMIT: u8 = b'c';
/// Only for the framer: the source has advanced to the record's place.
pub const MOVED: u8 = b'm';
/// Only for the framer: a set of transactions that the source has executed.
pub const EXECUTED: u8 = b'x';

/// Time of the commit and id of the transaction that a record begins.
pub fn begin_of<'a>(record: &Record<'a>) -> Result<(i64, &'a str)> {
    let mut body = body_of(record);
    let commit_us = body.u64("time of the commit")? as i64;
    let id = std::str::from_utf8(body.rest()).map_err(|_| body.fail("the transaction's id is no text"))?;
    Ok((commit_us, id))
}

/// The database, and what happens to its table as JSON.
pub fn statement_of<'a>(record: &Record<'a>) -> Result<(&'a str, &'a str)> {
    let mut body = body_of(record);
    let database = text(&mut body)?;
    let json = std::str::from_utf8(body.rest()).map_err(|_| body.fail("a statement is no text"))?;
    Ok((database, json))
}

/// The id of the definition of a record of rows, or of the definition itself.
pub fn id_of(record_body: &[u8], offset: u64) -> Result<u64> {
    Cursor::new(record_body, offset).uint_le(4, "id of a definition")
}

/// The rows of a record. Its cursor is over the record's body.
pub fn rows_of<'a>(record: &Record<'a>) -> Result<RowsEvent<'a>> {
    rows_of_body(record.body, record.offset + crate::records::HEADER_SIZE as u64)
}

/// The same of the body alone. `offset`: where it is in the log, for errors.
fn rows_of_body(body: &[u8], offset: u64) -> Result<RowsEvent<'_>> {
    let mut body = Cursor::new(body, offset);
    let table_id = body.uint_le(4, "id of a definition")?;
    let kind = match body.u8("kind of rows")? {
        1 => RowsKind::Insert,
        2 => RowsKind::Update,
        3 => RowsKind::Delete,
        other => return Err(body.fail(format!("rows of the kind {other}"))),
    };
    let columns = usize::from(body.u16("number of columns")?);
    let present = Present::parse(&mut body, columns)?;
    let present_after = match kind {
        RowsKind::Update => Present::parse(&mut body, columns)?,
        _ => present,
    };
    Ok(RowsEvent {
        kind,
        table_id,
        flags: 0,
        present,
        present_after,
        columns,
        partial_json: false,
        absent_is_unchanged: true,
        identity_only: false,
        record: None,
        images: body,
    })
}

/// The same of a message's row, which was rewritten into `body`. `offset`: of the message's record.
pub fn rewritten_rows(body: &[u8], offset: u64) -> Result<RowsEvent<'_>> {
    let rows = rows_of_body(body, offset)?;
    let identity_only = rows.kind != RowsKind::Insert && !rows.present.is_full();
    Ok(RowsEvent { record: Some(offset), identity_only, ..rows })
}

/// The message of a record: behind the id of its definition.
pub fn message_of<'a>(record: &Record<'a>) -> Result<&'a [u8]> {
    let mut body = body_of(record);
    body.skip(4, "id of a definition")?;
    Ok(body.rest())
}

fn body_of<'a>(record: &Record<'a>) -> Cursor<'a> {
    Cursor::new(record.body, record.offset + crate::records::HEADER_SIZE as u64)
}

/// A text with its length before it.
fn text<'a>(body: &mut Cursor<'a>) -> Result<&'a str> {
    let length = body.u16("length of a name")?;
    std::str::from_utf8(body.take(length.into(), "name")?).map_err(|_| body.fail("a name is no text"))
}

/// The error for rows that their transaction has not defined.
#[cold]
fn undefined(record: &Record<'_>) -> DecodeError {
    DecodeError::new("rows without a definition in their transaction", record.offset)
}

/// The error for a record that cannot be where it is.
#[cold]
fn unexpected(record: &Record<'_>) -> DecodeError {
    DecodeError::new(format!("a record of the kind {} where none can be", record.kind), record.offset)
}
