//! Statements in the log: QUERY events, and LOAD DATA, whose event is a QUERY with a longer head.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::mysql::event::EventKind;

/// A QUERY event (or LOAD DATA, INCIDENT, an unknown event) that may change rows or tables without row
/// events.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    pub database: &'a [u8],
    pub sql: &'a [u8],
    /// The type of the event if it is not a QUERY.
    pub kind: Option<EventKind>,
    /// Status variables of the event: see `Status`.
    pub variables: &'a [u8],
}

/// Database and SQL of a QUERY event's body.
pub fn query(body: &[u8], base: u64) -> Result<(&[u8], &[u8])> {
    let statement = query_statement(body, base)?;
    Ok((statement.database, statement.sql))
}

pub fn query_statement(body: &[u8], base: u64) -> Result<Statement<'_>> {
    statement(body, base, 0, None)
}

/// Database and SQL of an EXECUTE_LOAD_QUERY: a QUERY with 13 more bytes in its fixed part.
pub fn load_query(body: &[u8], base: u64) -> Result<Statement<'_>> {
    statement(body, base, 13, Some(EventKind::EXECUTE_LOAD_QUERY))
}

fn statement(body: &[u8], base: u64, more: usize, kind: Option<EventKind>) -> Result<Statement<'_>> {
    let mut cursor = Cursor::new(body, base);
    cursor.skip(8, "query head")?;
    let database_length = cursor.u8("database length")?;
    cursor.skip(2, "error code")?;
    let variables_length = cursor.u16("status variables length")?;
    cursor.skip(more, "load data head")?;
    let variables = cursor.take(variables_length.into(), "status variables")?;
    let database = cursor.take(database_length.into(), "database")?;
    cursor.skip(1, "end of database")?;
    Ok(Statement { database, sql: cursor.rest(), kind, variables })
}

/// Whether the statement is a CREATE TABLE … SELECT of MySQL 8.0.21 or later, whose row events follow.
pub fn ends_with_start_transaction(sql: &[u8]) -> bool {
    const END: &[u8] = b"START TRANSACTION";
    let trimmed = sql.trim_ascii_end();
    trimmed.len() >= END.len() && trimmed[trimmed.len() - END.len()..].eq_ignore_ascii_case(END)
}
