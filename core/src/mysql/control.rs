//! What a statement in the log does to its transaction. Everything that reads a log asks here.
//!
//! Servers write most of these statements themselves. Before MySQL 5.6 and MariaDB 10.0 a savepoint was
//! logged as the client had written it, so comments, case and optional words may stand anywhere.

use crate::mysql::query::ends_with_start_transaction;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    Begin,
    Commit,
    Rollback,
    /// A savepoint's name as it was written, with its quotes.
    Savepoint(&'a [u8]),
    RollbackTo(&'a [u8]),
    /// RELEASE SAVEPOINT.
    Release,
    Xa(XaStatement),
    /// CREATE TABLE … SELECT of MySQL 8.0.21 or later: its row events and an XID follow.
    CreatesWithRows,
    Other,
}

/// What an XA statement in the log does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XaStatement {
    Start,
    End,
    Commit,
    Rollback,
}

pub fn control(sql: &[u8]) -> Control<'_> {
    if sql == b"BEGIN" {
        return Control::Begin; // so nearly every transaction begins
    }
    let mut words = Words { rest: sql };
    let first = words.next();
    let is = |word: &[u8], other: &str| word.eq_ignore_ascii_case(other.as_bytes());
    if is(first, "BEGIN") {
        let next = words.next();
        if next.is_empty() || is(next, "WORK") {
            return Control::Begin;
        }
    } else if is(first, "START") && is(words.next(), "TRANSACTION") {
        return Control::Begin;
    } else if is(first, "COMMIT") {
        return Control::Commit;
    } else if is(first, "ROLLBACK") {
        let mut next = words.next();
        if is(next, "WORK") {
            next = words.next();
        }
        return if is(next, "TO") { Control::RollbackTo(words.name()) } else { Control::Rollback };
    } else if is(first, "SAVEPOINT") {
        return Control::Savepoint(words.rest());
    } else if is(first, "RELEASE") && is(words.next(), "SAVEPOINT") {
        return Control::Release;
    } else if let Some((statement, _)) = xa_statement(sql) {
        return Control::Xa(statement);
    } else if ends_with_start_transaction(sql) {
        return Control::CreatesWithRows;
    }
    Control::Other
}

/// The XA statement and what follows it: its xid, which the server always writes as `X'6162',X'',1`.
#[inline]
pub fn xa_statement(sql: &[u8]) -> Option<(XaStatement, &[u8])> {
    if sql == b"BEGIN" {
        return None; // as in `control`
    }
    other_than_begin(sql)
}

fn other_than_begin(sql: &[u8]) -> Option<(XaStatement, &[u8])> {
    let mut words = Words { rest: sql };
    if !words.next().eq_ignore_ascii_case(b"XA") {
        return None;
    }
    let statement = match words.next().to_ascii_uppercase().as_slice() {
        b"START" | b"BEGIN" => XaStatement::Start,
        b"END" => XaStatement::End,
        b"COMMIT" => XaStatement::Commit,
        b"ROLLBACK" => XaStatement::Rollback,
        _ => return None,
    };
    Some((statement, words.rest()))
}

/// The words of a statement, without what is between them.
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    /// The next word; empty if another token follows, or none.
    fn next(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let (word, rest) = rest.split_at(length);
        self.rest = rest;
        word
    }

    /// What follows blanks and comments, without blanks at its end.
    fn rest(&mut self) -> &'a [u8] {
        loop {
            self.rest = self.rest.trim_ascii();
            let comment = match self.rest {
                [b'/', b'*', rest @ ..] => rest.windows(2).position(|end| end == b"*/").map(|at| at + 4),
                [b'-', b'-', b' ' | b'\t' | b'\n', ..] | [b'#', ..] => {
                    Some(self.rest.iter().position(|byte| *byte == b'\n').unwrap_or(self.rest.len()))
                }
                _ => return self.rest,
            };
            self.rest = comment.and_then(|length| self.rest.get(length..)).unwrap_or_default();
        }
    }

    /// The name behind ROLLBACK TO, where SAVEPOINT may stand before it. A savepoint may have that name.
    fn name(&mut self) -> &'a [u8] {
        let name = self.rest();
        if !self.next().eq_ignore_ascii_case(b"SAVEPOINT") {
            return name;
        }
        match self.rest() {
            [] | [b';', ..] => name,
            rest => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Control<'_> {
        control(sql.as_bytes())
    }

    #[test]
    fn savepoints_as_servers_and_clients_write_them() {
        for sql in ["SAVEPOINT `a`", "savepoint\t`a`  ", "/* x */ SAVEPOINT -- y\n`a`", "SAVEPOINT/**/`a`"] {
            assert_eq!(of(sql), Control::Savepoint(b"`a`"), "{sql}");
        }
        for sql in
            ["ROLLBACK TO `a`", "rollback work to savepoint `a`", "ROLLBACK /* x */ TO\nSAVEPOINT# y\n `a`"]
        {
            assert_eq!(of(sql), Control::RollbackTo(b"`a`"), "{sql}");
        }
        assert_eq!(of("ROLLBACK TO savepoint"), Control::RollbackTo(b"savepoint"));
        assert_eq!(of("ROLLBACK TO SAVEPOINT savepoint"), Control::RollbackTo(b"savepoint"));
        assert_eq!(of("ROLLBACK TO `savepoint `"), Control::RollbackTo(b"`savepoint `"));
        assert_eq!(of("RELEASE SAVEPOINT a"), Control::Release);
    }

    #[test]
    fn other_statements_are_not_taken_for_control() {
        for sql in ["ROLLBACK", "rollback work", "ROLLBACK /* TO a */", "ROLLBACK AND CHAIN"] {
            assert_eq!(of(sql), Control::Rollback, "{sql}");
        }
        assert_eq!(of("BEGIN"), Control::Begin);
        assert_eq!(of("BEGIN NOT ATOMIC SELECT 1; END"), Control::Other);
        assert_eq!(of("COMMIT /* XA PREPARE X'78',X'',1 */"), Control::Commit);
        assert_eq!(of("XA START X'78',X'',1"), Control::Xa(XaStatement::Start));
        assert_eq!(of("XA RECOVER"), Control::Other);
        assert_eq!(of("CREATE TABLE t (a INT) START TRANSACTION"), Control::CreatesWithRows);
        for sql in
            ["", "/*", "/* SAVEPOINT a", "SAVEPOINTS", "committed", "INSERT INTO t VALUES ('SAVEPOINT a')"]
        {
            assert_eq!(of(sql), Control::Other, "{sql}");
        }
    }
}
