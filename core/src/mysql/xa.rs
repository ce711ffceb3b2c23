//! XA transactions: their names, the statements and events of them in a log, and their entries in the index.
//!
//! A source writes the rows of an XA transaction when it is *prepared*. They count from its `XA COMMIT` on,
//! which may come much later, in another file, or never (`XA ROLLBACK`). In the relay log, the rows are at
//! the XA COMMIT (see `frame/branch.rs`). At the prepare there is only an empty transaction under its GTID.
//! Penstock writes both, and marks them by a comment in their COMMIT (`rewritten.rs`).

use std::fmt::Write as _;

use crate::cursor::Cursor;
use crate::error::Result;
use crate::framing::Prepared;
use crate::json_text::quoted;
use crate::mysql::checksum::Checksum;
use crate::mysql::control::xa_statement;
pub use crate::mysql::control::XaStatement;
use crate::mysql::event::{EventHeader, EventKind, HEADER_SIZE};

/// What a transaction did to the set of prepared ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Prepared(Prepared),
    /// Committed or rolled back: the xid.
    Ended(String),
}

impl Prepared {
    pub fn json(&self) -> String {
        let Prepared { xid, file, start, length } = self;
        let (xid, file) = (quoted(xid), quoted(file));
        format!("{{\"xid\":{xid},\"file\":{file},\"start\":{start},\"length\":{length}}}")
    }
}

impl Change {
    pub fn json(&self) -> String {
        match self {
            Change::Prepared(prepared) => prepared.json(),
            Change::Ended(xid) => format!("{{\"xid\":{}}}", quoted(xid)),
        }
    }
}

/// The statement and its xid.
pub fn statement(sql: &[u8]) -> Option<(XaStatement, String)> {
    let (statement, xid) = xa_statement(sql)?;
    Some((statement, String::from_utf8_lossy(xid).into_owned()))
}

/// The xid in the body of an XA_PREPARE event, written as in statements.
pub fn xid_of_event(body: &[u8], base: u64) -> Result<String> {
    let mut cursor = Cursor::new(body, base);
    cursor.skip(1, "XA one phase")?;
    let format = cursor.u32("XA format")?;
    let global = cursor.u32("length of the XA transaction's name")? as usize;
    let branch = cursor.u32("length of the XA branch's name")? as usize;
    let mut text = String::new();
    for length in [global, branch] {
        text.push_str("X'");
        for byte in cursor.take(length, "XA name")? {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str("',");
    }
    let _ = write!(text, "{format}");
    Ok(text)
}

/// A QUERY event that Penstock makes. It has no session and no database, and the time and server of `event`.
pub fn query_event(event: &[u8], header: &EventHeader, sql: &str, checksum: Checksum) -> Vec<u8> {
    // thread id 4, execution time 4, length of database 1, error code 2, length of status variables 2, and
    // the empty database's end
    const FIXED: [u8; 14] = [0; 14];
    let mut made = event.get(..4).unwrap_or(&[0; 4]).to_vec();
    made.push(EventKind::QUERY.0);
    made.extend_from_slice(event.get(5..9).unwrap_or(&[0; 4]));
    made.extend_from_slice(&((HEADER_SIZE + FIXED.len() + sql.len() + checksum.size()) as u32).to_le_bytes());
    made.extend_from_slice(&header.end_position.to_le_bytes());
    made.extend_from_slice(&[0; 2]);
    made.extend_from_slice(&FIXED);
    made.extend_from_slice(sql.as_bytes());
    checksum.append(&mut made);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_as_servers_write_them() {
        let found = |sql: &str| statement(sql.as_bytes());
        let name = String::from("X'630078',X'62',7");
        assert_eq!(found("XA START X'630078',X'62',7"), Some((XaStatement::Start, name.clone())));
        assert_eq!(found("XA COMMIT X'630078',X'62',7"), Some((XaStatement::Commit, name.clone())));
        assert_eq!(found("XA RECOVER"), None);
        assert_eq!(found("INSERT INTO t VALUES ('XA COMMIT ')"), None);
        // XA_PREPARE of the same transaction, as 8.0.15 wrote it.
        let body = [0, 7, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0x63, 0, 0x78, 0x62];
        assert_eq!(xid_of_event(&body, 0).unwrap(), name);
        assert!(xid_of_event(&body[..16], 0).is_err());
    }
}
