//! Status variables of a QUERY event. Each has a code, which decides the length of the value after it.
//!
//! MySQL writes them in the order of `Query_log_event::write` (log_event.cc, 5.6 to 9.7). A code that is not
//! known ends the list, since its length is not known either.

use std::borrow::Cow;

use crate::charset::{collation_charset, Charset};
use crate::cursor::Cursor;
use crate::error::Result;

const FLAGS2: u8 = 0;
const SQL_MODE: u8 = 1;
const CATALOG: u8 = 2;
const CHARSET: u8 = 4;
const TIME_ZONE: u8 = 5;
const CATALOG_NZ: u8 = 6;
const INVOKER: u8 = 11;
const UPDATED_DB_NAMES: u8 = 12;
/// Instead of the count. It stands for more than 16 databases, or a table that foreign keys refer to.
const OVER_MAX_DBS: u8 = 254;

/// The databases that a statement wrote to, also through views, triggers, functions and foreign keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Updated {
    /// The event has no list: MariaDB, MySQL before 5.6, statements that the server made.
    #[default]
    Unsaid,
    /// The event says that it does not list them, or the list cannot be read.
    Unlisted,
    Listed(Vec<String>),
}

/// The status variables that are used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The session's sql_mode, if the event has it.
    pub sql_mode: Option<u64>,
    /// Id of a collation of `character_set_client`, the statement's character set, if the event has it.
    pub client_collation: Option<u16>,
    /// Id of the session's `collation_server`, which databases get that name no character set, if the event
    /// has it.
    pub server_collation: Option<u16>,
    pub updated: Updated,
}

impl Status {
    /// Never fails: variables after unreadable bytes are unknown.
    pub fn parse(variables: &[u8]) -> Status {
        let mut status = Status::default();
        let mut cursor = Cursor::new(variables, 0);
        while !cursor.is_empty() {
            match status.variable(&mut cursor) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    status.updated = Updated::Unlisted;
                    break;
                }
            }
        }
        status
    }

    /// The statement as text. Servers log the bytes that the client sent, in the client's character set. Read
    /// in another one, names would be wrong, and the second byte of a Chinese or Japanese character could be
    /// taken for a quote or a backslash.
    pub fn text<'a>(&self, sql: &'a [u8]) -> Cow<'a, str> {
        let charset = self.client_collation.and_then(Charset::from_collation);
        match charset {
            None | Some(Charset::Utf8 | Charset::Binary) => String::from_utf8_lossy(sql),
            Some(charset) => {
                let mut text = Vec::with_capacity(sql.len() + sql.len() / 2);
                charset.append(sql, &mut text);
                Cow::Owned(String::from_utf8_lossy(&text).into_owned())
            }
        }
    }

    /// The character set of databases that the session creates without naming one.
    pub fn server_charset(&self) -> Option<&'static str> {
        self.server_collation.and_then(collation_charset)
    }

    fn variable(&mut self, cursor: &mut Cursor<'_>) -> Result<bool> {
        match cursor.u8("status variable")? {
            SQL_MODE => self.sql_mode = Some(cursor.u64("sql_mode")?),
            CHARSET => {
                self.client_collation = Some(cursor.u16("character set of the client")?);
                cursor.skip(2, "collation of the connection")?;
                self.server_collation = Some(cursor.u16("collation of the server")?);
            }
            UPDATED_DB_NAMES => {
                let said = self.updated != Updated::Unsaid;
                let found = updated(cursor)?;
                self.updated = if said { Updated::Unlisted } else { found };
            }
            TIME_ZONE | CATALOG_NZ => drop(cursor.take_u8_prefixed("time zone or catalog")?),
            CATALOG => {
                cursor.take_u8_prefixed("catalog")?;
                cursor.skip(1, "end of catalog")?;
            }
            INVOKER => {
                cursor.take_u8_prefixed("user")?;
                cursor.take_u8_prefixed("host")?;
            }
            code => match length(code) {
                Some(length) => cursor.skip(length, "status variable")?,
                None => return Ok(false),
            },
        }
        Ok(true)
    }
}

/// The other variables of MySQL up to 9.7.
fn length(code: u8) -> Option<usize> {
    Some(match code {
        FLAGS2 | 3 | 10 => 4, // AUTO_INCREMENT, SOURCE_DATA_WRITTEN
        7 | 8 | 18 => 2,      // LC_TIME_NAMES, CHARSET_DATABASE, DEFAULT_COLLATION_FOR_UTF8MB4
        9 | 17 => 8,          // TABLE_MAP_FOR_UPDATE, DDL_LOGGED_WITH_XID
        13 => 3,              // MICROSECONDS
        16 | 19 | 20 => 1,    // EXPLICIT_DEFAULTS_FOR_TIMESTAMP, SQL_REQUIRE_PRIMARY_KEY, TABLE_ENCRYPTION
        _ => return None,
    })
}

fn updated(cursor: &mut Cursor<'_>) -> Result<Updated> {
    let count = cursor.u8("count of databases")?;
    if count == OVER_MAX_DBS {
        return Ok(Updated::Unlisted);
    }
    let mut names = Vec::new();
    for _ in 0..count {
        let rest = cursor.clone().rest();
        let length = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let name = cursor.take(length, "database name")?;
        cursor.skip(1, "end of database name")?;
        match std::str::from_utf8(name) {
            Ok(name) if !name.is_empty() => names.push(name.to_owned()),
            _ => return Ok(Updated::Unlisted),
        }
    }
    Ok(if names.is_empty() { Updated::Unlisted } else { Updated::Listed(names) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 8.0.15 wrote it for an INSERT whose trigger writes to another database.
    fn real() -> Vec<u8> {
        let mut bytes = vec![FLAGS2, 0, 0, 0, 0, SQL_MODE, 0x20, 0, 0xa0, 0x45, 0, 0, 0, 0];
        bytes.extend_from_slice(
            b"\x06\x03std\x04\xff\x00\xff\x00\xff\x00\x0c\x02b\0a\0\x0d\x01\x02\x03\x12\xff\0",
        );
        bytes
    }

    #[test]
    fn the_databases_that_a_statement_wrote_to_are_listed() {
        let status = Status::parse(&real());
        assert_eq!(status.sql_mode, Some(0x45a0_0020));
        assert_eq!(status.updated, Updated::Listed(vec!["b".into(), "a".into()]));
    }

    #[test]
    fn a_statement_is_read_in_the_character_set_of_its_client() {
        let status = |collation: u8| Status::parse(&[4, collation, 0, 8, 0, 8, 0]);
        assert_eq!(status(8).client_collation, Some(8));
        assert_eq!(status(8).text(b"TRUNCATE gr\xf6\xdfe"), "TRUNCATE größe"); // latin1
        assert_eq!(status(28).text(b"ALTER TABLE `\x81\x60`"), "ALTER TABLE `乣`"); // gbk
        assert_eq!(status(45).text("größe".as_bytes()), "größe");
        assert_eq!(status(255).text(b"\xf6"), "\u{fffd}");
        assert_eq!(Status::parse(b"").text(b"\xf6"), "\u{fffd}");
    }

    #[test]
    fn the_character_set_of_new_databases_is_that_of_the_session() {
        let status = |collation: u8| Status::parse(&[4, 45, 0, 45, 0, collation, 0]);
        assert_eq!(status(8).server_charset(), Some("latin1"));
        assert_eq!(status(255).server_charset(), Some("utf8mb4"));
        assert_eq!(Status::parse(b"").server_charset(), None);
    }

    #[test]
    fn databases_that_are_not_listed_are_not_taken_for_none() {
        for bytes in [
            &b"\x0c\xfe"[..],
            b"\x0c\x00",
            b"\x0c\x01",
            b"\x0c\x01a",
            b"\x0c\x02a\0b",
            b"\x0c\x01\0",
            b"\x0c\x01\xff\0",
            b"\x0c\x01a\0\x0c\x01b\0",
            b"\x0c\x01a\0\x04\x01",
            b"\x06\xffstd",
        ] {
            assert_eq!(Status::parse(bytes).updated, Updated::Unlisted, "{bytes:x?}");
        }
        assert_eq!(Status::parse(b"\xf0\x0c\x01a\0").updated, Updated::Unsaid);
        assert_eq!(Status::parse(b"").updated, Updated::Unsaid);
        assert_eq!(Status::parse(b"\x0c\x01a\0\x15\0").updated, Updated::Listed(vec!["a".into()]));
    }

    #[test]
    fn no_prefix_of_real_variables_lists_other_databases() {
        let bytes = real();
        for end in 0..bytes.len() {
            match Status::parse(&bytes[..end]).updated {
                Updated::Listed(names) => assert_eq!(names, ["b", "a"]),
                Updated::Unsaid | Updated::Unlisted => {}
            }
        }
    }
}
