//! Where a transaction begins and ends in a stream of events.
//!
//! MySQL announces a transaction by a GTID event (anonymous ones too, from 5.7 on); its body is a lone
//! QUERY (DDL, XA COMMIT), or BEGIN … XID, BEGIN … COMMIT, XA START … XA_PREPARE. Older logs have the body
//! only. MariaDB's GTID event is a BEGIN (or XA START) by itself, unless it announces a lone statement. Row
//! events outside BEGIN (5.1, non-transactional tables) end with the statement's last event.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::rewritten::is_rewritten;

pub const QUERY: u8 = 2;
pub const STOP: u8 = 3;
pub const ROTATE: u8 = 4;
pub const BEGIN_LOAD_QUERY: u8 = 17;
pub const EXECUTE_LOAD_QUERY: u8 = 18;
pub const FORMAT_DESCRIPTION: u8 = 15;
pub const XID: u8 = 16;
pub const TABLE_MAP: u8 = 19;
pub const INCIDENT: u8 = 26;
pub const HEARTBEAT: u8 = 27;
pub const IGNORABLE: u8 = 28;
pub const GTID: u8 = 33;
pub const ANONYMOUS_GTID: u8 = 34;
pub const PREVIOUS_GTIDS: u8 = 35;
pub const XA_PREPARE: u8 = 38;
pub const PARTIAL_UPDATE_ROWS: u8 = 39;
pub const TRANSACTION_PAYLOAD: u8 = 40;
pub const HEARTBEAT_V2: u8 = 41;
pub const GTID_TAGGED: u8 = 42;
pub const MARIADB_ANNOTATE_ROWS: u8 = 160;
pub const MARIADB_BINLOG_CHECKPOINT: u8 = 161;
pub const MARIADB_GTID: u8 = 162;
pub const MARIADB_GTID_LIST: u8 = 163;
pub const MARIADB_START_ENCRYPTION: u8 = 164;

pub const FLAG_ARTIFICIAL: u16 = 0x20;
pub const FLAG_IGNORABLE: u16 = 0x80;
pub const HEADER: usize = 19;
/// Of MariaDB's GTID event: a lone statement follows, without an end of its own.
pub const MARIADB_STANDALONE: u8 = 1;

/// Rows of any version: 20-22 before 5.1.16, 23-25 v1, 30-32 v2, 39 partial JSON updates.
#[inline]
pub fn is_rows(kind: u8) -> bool {
    matches!(kind, 20..=25 | 30..=32 | PARTIAL_UPDATE_ROWS)
}

#[inline]
pub fn is_gtid(kind: u8) -> bool {
    matches!(kind, GTID | ANONYMOUS_GTID | GTID_TAGGED | MARIADB_GTID)
}

/// Types that never change rows by themselves: known, and of no concern to the index.
fn is_harmless(kind: u8) -> bool {
    // INTVAR, RAND, USER_VAR, APPEND_BLOCK, DELETE_FILE, BEGIN_LOAD_QUERY precede a QUERY that is recorded.
    matches!(
        kind,
        5 | 9
            | 11
            | 13
            | 14
            | BEGIN_LOAD_QUERY
            | XID
            | IGNORABLE
            | 29
            | 36
            | 37
            | XA_PREPARE
            | MARIADB_ANNOTATE_ROWS
    )
}

/// The common header of an event, already known to be there in full.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    pub timestamp: u32,
    pub kind: u8,
    pub server_id: u32,
    pub length: u32,
    pub log_pos: u32,
    pub flags: u16,
}

impl Header {
    /// Inlined, since a `Result` of so many fields goes through memory: written in pieces and read at once,
    /// which processors do slowly.
    #[inline(always)]
    pub fn parse(event: &[u8], offset: u64) -> Result<Header> {
        let mut cursor = Cursor::new(event, offset);
        let head: &[u8; HEADER] = cursor.chunk("event header")?;
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = u32_at(9);
        if (length as usize) < HEADER {
            return Err(cursor.fail(format!("an event cannot be {length} bytes long")));
        }
        Ok(Header {
            timestamp: u32_at(0),
            kind: head[4],
            server_id: u32_at(5),
            length,
            log_pos: u32_at(13),
            flags: u16::from_le_bytes([head[17], head[18]]),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Between transactions.
    #[default]
    Idle,
    /// A GTID event has been seen, its body follows.
    Announced,
    /// Inside BEGIN.
    Begun,
    /// Inside a statement that is not inside BEGIN.
    Loose,
}

/// A QUERY (or LOAD DATA, INCIDENT, unknown event) that may change rows or tables without row events.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    pub database: &'a [u8],
    pub sql: &'a [u8],
    /// Not a QUERY: the type of the event.
    pub kind: Option<u8>,
    /// Status variables of the event: see `Status`.
    pub variables: &'a [u8],
}

/// What one event did to the transaction it belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Step<'a> {
    pub ends: bool,
    /// The transaction that ended was XA-prepared: its rows are not in effect.
    pub prepared: bool,
    /// It ended without being one (an event that stands alone).
    pub uncounted: bool,
    /// It stands in the log otherwise than the source sent it.
    pub rewritten: bool,
    pub savepoint: Option<Savepoint<'a>>,
    pub statement: Option<Statement<'a>>,
}

/// Savepoints stand in the log where rows could not be taken out of the transaction again: those between the
/// savepoint and the rollback are in the log and do not count.
#[derive(Debug, Clone, Copy)]
pub enum Savepoint<'a> {
    Set(&'a [u8]),
    RolledBackTo(&'a [u8]),
    /// The whole transaction.
    RolledBack,
}

#[derive(Debug, Clone, Default)]
pub struct Group {
    state: State,
}

impl Group {
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Takes an event into account. `body` is what lies between header and checksum, `base` its offset;
    /// `step` is a new one.
    pub fn step<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        base: u64,
        step: &mut Step<'a>,
    ) -> Result<()> {
        match header.kind {
            kind if is_gtid(kind) => {
                if !self.is_idle() {
                    return Err(Cursor::new(body, base)
                        .fail("a transaction begins before the one before it has ended"));
                }
                self.state = State::Announced;
                if kind == MARIADB_GTID {
                    self.announced_by_mariadb(body, base)?;
                }
            }
            QUERY => self.query(body, base, step)?,
            XID => step.ends = true,
            XA_PREPARE => {
                // One byte: 1 for XA COMMIT … ONE PHASE, which is in effect at once.
                step.prepared = Cursor::new(body, base).u8("XA one phase")? == 0;
                step.ends = true;
            }
            kind if is_rows(kind) => {
                let mut cursor = Cursor::new(body, base);
                cursor.skip(6, "table id")?;
                let last_of_statement = cursor.u16("row event flags")? & 1 != 0;
                match self.state {
                    State::Begun => {}
                    _ if last_of_statement => step.ends = true,
                    _ => self.state = State::Loose,
                }
            }
            TABLE_MAP => self.loosen(),
            EXECUTE_LOAD_QUERY => {
                step.statement = Some(load_query(body, base)?);
                step.ends = self.state != State::Begun;
            }
            kind if is_harmless(kind) || header.flags & FLAG_IGNORABLE != 0 => {
                if self.is_idle() && header.flags & FLAG_IGNORABLE != 0 {
                    step.ends = true;
                    step.uncounted = true;
                } else {
                    self.loosen();
                }
            }
            kind => {
                // INCIDENT, or an event we do not know and must not ignore: it may have changed anything.
                step.statement =
                    Some(Statement { database: b"", sql: b"", kind: Some(kind), variables: b"" });
                step.ends = self.state != State::Begun;
            }
        }
        if step.ends {
            *self = Group::default();
        }
        Ok(())
    }

    /// MariaDB sends no BEGIN: the flags behind number (8) and domain (4) say what follows.
    fn announced_by_mariadb(&mut self, body: &[u8], base: u64) -> Result<()> {
        let mut cursor = Cursor::new(body, base);
        cursor.skip(12, "GTID")?;
        let flags = cursor.u8("GTID flags")?;
        if flags & MARIADB_STANDALONE == 0 {
            self.state = State::Begun;
        }
        Ok(())
    }

    #[inline]
    fn loosen(&mut self) {
        if self.state != State::Begun {
            self.state = State::Loose;
        }
    }

    fn query<'a>(&mut self, body: &'a [u8], base: u64, step: &mut Step<'a>) -> Result<()> {
        let statement = query_statement(body, base)?;
        let sql = statement.sql;
        match control(sql) {
            Control::Begin => self.state = State::Begun,
            Control::End => (step.ends, step.rewritten) = (true, is_rewritten(sql)),
            Control::Rollback => (step.ends, step.savepoint) = (true, Some(Savepoint::RolledBack)),
            Control::Savepoint(savepoint) => {
                step.savepoint = Some(savepoint);
                step.ends = self.state != State::Begun;
            }
            Control::XaCommit => {
                // In a relay log its rows stand here, so what is left as sent commits rows nobody knows.
                step.ends = true;
                step.statement = Some(Statement { kind: Some(XA_PREPARE), ..statement });
            }
            Control::Inside => step.ends = self.state != State::Begun,
            Control::No => {
                step.statement = Some(statement);
                if self.state != State::Begun {
                    // CREATE TABLE … SELECT of 8.0.21+: the row events and an XID follow.
                    if ends_with_start_transaction(sql) {
                        self.state = State::Begun;
                    } else {
                        step.ends = true;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Database and SQL of a QUERY event's body.
pub fn query(body: &[u8], base: u64) -> Result<(&[u8], &[u8])> {
    let statement = query_statement(body, base)?;
    Ok((statement.database, statement.sql))
}

pub fn query_statement(body: &[u8], base: u64) -> Result<Statement<'_>> {
    statement(body, base, 0, None)
}

/// EXECUTE_LOAD_QUERY: a QUERY with 13 more bytes in its fixed part.
pub fn load_query(body: &[u8], base: u64) -> Result<Statement<'_>> {
    statement(body, base, 13, Some(EXECUTE_LOAD_QUERY))
}

fn statement(body: &[u8], base: u64, more: usize, kind: Option<u8>) -> Result<Statement<'_>> {
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

enum Control<'a> {
    Begin,
    /// COMMIT, XA ROLLBACK.
    End,
    Rollback,
    XaCommit,
    Savepoint(Savepoint<'a>),
    /// RELEASE, XA END: says nothing about the transaction's end.
    Inside,
    No,
}

fn control(sql: &[u8]) -> Control<'_> {
    let starts = |word: &str| {
        sql.len() >= word.len()
            && sql[..word.len()].eq_ignore_ascii_case(word.as_bytes())
            && !sql.get(word.len()).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    match sql.first().map(u8::to_ascii_uppercase) {
        Some(b'B') if starts("BEGIN") => Control::Begin,
        Some(b'C') if starts("COMMIT") => Control::End,
        Some(b'R') if starts("ROLLBACK TO") => {
            let rest = sql[11..].trim_ascii();
            let known = rest.get(..10).is_some_and(|word| word.eq_ignore_ascii_case(b"SAVEPOINT "));
            Control::Savepoint(Savepoint::RolledBackTo(if known { &rest[10..] } else { rest }))
        }
        Some(b'R') if starts("RELEASE SAVEPOINT") => Control::Inside,
        Some(b'R') if starts("ROLLBACK") => Control::Rollback,
        Some(b'S') if starts("SAVEPOINT") => Control::Savepoint(Savepoint::Set(&sql[9..])),
        Some(b'S') if starts("START TRANSACTION") => Control::Begin,
        Some(b'X') if starts("XA START") || starts("XA BEGIN") => Control::Begin,
        Some(b'X') if starts("XA END") => Control::Inside,
        Some(b'X') if starts("XA COMMIT") => Control::XaCommit,
        Some(b'X') if starts("XA ROLLBACK") => Control::End,
        _ => Control::No,
    }
}

pub fn ends_with_start_transaction(sql: &[u8]) -> bool {
    const END: &[u8] = b"START TRANSACTION";
    let trimmed = sql.trim_ascii_end();
    trimmed.len() >= END.len() && trimmed[trimmed.len() - END.len()..].eq_ignore_ascii_case(END)
}
