//! Finds where transactions begin and end in a stream of events.
//!
//! MySQL announces a transaction by a GTID event (anonymous ones too, from 5.7 on); its body is a lone
//! QUERY (DDL, XA COMMIT), or BEGIN … XID, BEGIN … COMMIT, XA START … XA_PREPARE. Older logs have the body
//! only. MariaDB's GTID event is a BEGIN (or XA START) by itself, unless it announces a lone statement. Row
//! events outside BEGIN (5.1, non-transactional tables) end with the statement's last event.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::mysql::control::{control, Control, XaStatement};
use crate::mysql::event::{EventHeader, EventKind};
use crate::mysql::gtid_event::{alters_later, MARIADB_STANDALONE};
use crate::mysql::query::{load_query, query_statement, Statement};
use crate::mysql::rewritten::is_rewritten;
use crate::mysql::savepoints::{Savepoint, Savepoints, Target};

/// Known types that never change rows by themselves: the index does not record them.
fn is_harmless(kind: EventKind) -> bool {
    // The first six precede a QUERY that is recorded.
    matches!(
        kind,
        EventKind::INTVAR
            | EventKind::APPEND_BLOCK
            | EventKind::DELETE_FILE
            | EventKind::RAND
            | EventKind::USER_VAR
            | EventKind::BEGIN_LOAD_QUERY
            | EventKind::XID
            | EventKind::IGNORABLE
            | EventKind::ROWS_QUERY
            | EventKind::TRANSACTION_CONTEXT
            | EventKind::VIEW_CHANGE
            | EventKind::XA_PREPARE
            | EventKind::MARIADB_ANNOTATE_ROWS
    )
}

/// The whole transaction is taken back.
const ALL: Target = Target { place: 0, first: 0 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Between transactions.
    #[default]
    Idle,
    /// A GTID event has been seen, its body follows.
    Announced,
    /// Between BEGIN and the end of its transaction.
    InTransaction,
    /// In a statement without a BEGIN before it.
    InStatement,
}

/// What one event did to its transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Step<'a> {
    pub ends: bool,
    /// The transaction that ended was only XA-prepared: its rows do not count yet.
    pub prepared: bool,
    /// What ended was an event outside of transactions.
    pub uncounted: bool,
    /// The log has other bytes than the source sent.
    pub rewritten: bool,
    /// If rolled back, row events since `place` do not count: that of a savepoint, or 0 for the whole
    /// transaction. If `first` is not `place`, those since `first` may not count, and `statement` is the
    /// ROLLBACK TO, of kind QUERY.
    pub savepoint: Option<Savepoint>,
    pub statement: Option<Statement<'a>>,
}

#[derive(Debug, Clone, Default)]
pub struct Group {
    state: State,
    savepoints: Savepoints,
    /// The ALTER TABLE that follows has only begun, or is rolled back: see `alters_later`.
    only_begun: bool,
}

impl Group {
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Processes an event. `body` is what is between header and checksum, `base` its offset. `place`: the
    /// event's end, as the caller counts. `step`: an empty one, which is filled.
    pub fn step<'a>(
        &mut self,
        header: &EventHeader,
        body: &'a [u8],
        base: u64,
        place: u64,
        step: &mut Step<'a>,
    ) -> Result<()> {
        match header.kind {
            kind if kind.is_gtid() => {
                if !self.is_idle() {
                    return Err(Cursor::new(body, base)
                        .fail("a transaction begins before the one before it has ended"));
                }
                self.state = State::Announced;
                if kind == EventKind::MARIADB_GTID {
                    self.announced_by_mariadb(body, base)?;
                }
            }
            EventKind::QUERY => self.query(body, base, place, step)?,
            EventKind::XID => step.ends = true,
            EventKind::XA_PREPARE => {
                // One byte: 1 for XA COMMIT … ONE PHASE, which counts at once.
                step.prepared = Cursor::new(body, base).u8("XA one phase")? == 0;
                step.ends = true;
            }
            kind if kind.is_rows() => {
                let mut cursor = Cursor::new(body, base);
                cursor.skip(6, "table id")?;
                let last_of_statement = cursor.u16("row event flags")? & 1 != 0;
                match self.state {
                    State::InTransaction => {}
                    _ if last_of_statement => step.ends = true,
                    _ => self.state = State::InStatement,
                }
            }
            EventKind::TABLE_MAP => self.enter_statement(),
            EventKind::EXECUTE_LOAD_QUERY => {
                step.statement = Some(load_query(body, base)?);
                step.ends = self.state != State::InTransaction;
            }
            kind if is_harmless(kind) || header.flags & EventHeader::FLAG_IGNORABLE != 0 => {
                if self.is_idle() && header.flags & EventHeader::FLAG_IGNORABLE != 0 {
                    step.ends = true;
                    step.uncounted = true;
                } else {
                    self.enter_statement();
                }
            }
            kind => {
                // INCIDENT, or an unknown event that must not be ignored: it may have changed anything.
                step.statement =
                    Some(Statement { database: b"", sql: b"", kind: Some(kind), variables: b"" });
                step.ends = self.state != State::InTransaction;
            }
        }
        if step.ends {
            *self = Group::default();
        }
        Ok(())
    }

    /// MariaDB sends no BEGIN. The flags after number (8) and domain (4) say what follows.
    fn announced_by_mariadb(&mut self, body: &[u8], base: u64) -> Result<()> {
        let mut cursor = Cursor::new(body, base);
        cursor.skip(12, "GTID")?;
        let flags = cursor.u8("GTID flags")?;
        if flags & MARIADB_STANDALONE == 0 {
            self.state = State::InTransaction;
        }
        self.only_begun = alters_later(body);
        Ok(())
    }

    #[inline]
    fn enter_statement(&mut self) {
        if self.state != State::InTransaction {
            self.state = State::InStatement;
        }
    }

    fn query<'a>(&mut self, body: &'a [u8], base: u64, place: u64, step: &mut Step<'a>) -> Result<()> {
        let statement = query_statement(body, base)?;
        let sql = statement.sql;
        let inside = self.state == State::InTransaction;
        match control(sql) {
            Control::Begin | Control::Xa(XaStatement::Start) => self.state = State::InTransaction,
            Control::Commit | Control::Xa(XaStatement::Rollback) => {
                (step.ends, step.rewritten) = (true, is_rewritten(sql));
            }
            Control::Rollback => (step.ends, step.savepoint) = (true, Some(Savepoint::RolledBackTo(ALL))),
            Control::Savepoint(name) => {
                self.savepoints.set(name, place);
                (step.ends, step.savepoint) = (!inside, Some(Savepoint::Set));
            }
            Control::RollbackTo(name) => {
                let target = self.savepoints.roll_back_to(name).unwrap_or(ALL);
                if target.first != target.place {
                    step.statement = Some(Statement { kind: Some(EventKind::QUERY), ..statement });
                }
                (step.savepoint, step.ends) = (Some(Savepoint::RolledBackTo(target)), !inside);
            }
            Control::Xa(XaStatement::Commit) => {
                // In a relay log, a known XA transaction has its rows in place of its XA COMMIT. A remaining
                // XA COMMIT commits unknown rows.
                step.ends = true;
                step.statement = Some(Statement { kind: Some(EventKind::XA_PREPARE), ..statement });
            }
            Control::Release | Control::Xa(XaStatement::End) => step.ends = !inside,
            Control::Other | Control::CreatesWithRows if self.only_begun => step.ends = true,
            Control::CreatesWithRows => {
                step.statement = Some(statement);
                self.state = State::InTransaction;
            }
            Control::Other => {
                step.statement = Some(statement);
                step.ends = !inside;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement_after(gtid: &[u8]) -> (bool, bool) {
        let mut group = Group::default();
        let header =
            |kind| EventHeader { kind, timestamp: 0, server_id: 1, size: 0, end_position: 0, flags: 0 };
        group.step(&header(EventKind::MARIADB_GTID), gtid, 0, 0, &mut Step::default()).unwrap();
        let mut query = vec![0; 13];
        query.extend_from_slice(b"\0ALTER TABLE d.t RENAME COLUMN a TO b");
        let mut step = Step::default();
        group.step(&header(EventKind::QUERY), &query, 0, 0, &mut step).unwrap();
        (step.statement.is_some(), step.ends && group.is_idle())
    }

    #[test]
    fn an_alter_in_two_phases_counts_where_it_is_committed() {
        let gtid = |flags: u8, rest: &[u8]| {
            let mut body = vec![7; 12];
            body.push(flags);
            body.extend_from_slice(rest);
            body.resize(body.len().max(19), 0);
            body
        };
        assert_eq!(statement_after(&gtid(0x29, &[])), (true, true), "in one phase");
        assert_eq!(statement_after(&gtid(0x29, &[2])), (false, true), "START ALTER");
        assert_eq!(statement_after(&gtid(0x29, &[4, 9, 9])), (true, true), "COMMIT ALTER");
        assert_eq!(statement_after(&gtid(0x29, &[8, 9, 9])), (false, true), "ROLLBACK ALTER");
        let committed_together = [1, 2, 3, 4, 5, 6, 7, 8, 2];
        assert_eq!(statement_after(&gtid(0x2b, &committed_together)), (false, true), "after a commit id");
    }
}
