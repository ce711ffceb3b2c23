//! The events that announce a transaction: GTID (33), ANONYMOUS_GTID (34), GTID_TAGGED (42), and MariaDB's
//! GTID (162).

use crate::cursor::Cursor;
use crate::error::Result;
use crate::mysql::event::{EventHeader, EventKind};
use crate::mysql::gtid::{take_tag, Gtid, Origin, NUMBER_MAX};
use crate::mysql::gtid_domain::DomainGtid;
use crate::mysql::varint::{take_signed_varint, take_varint};

/// A flag of MariaDB's GTID event: one statement follows, and no event for the transaction's end.
pub const MARIADB_STANDALONE: u8 = 1;

const MARIADB_GROUP_COMMIT: u8 = 2;
const MARIADB_XA_PREPARED: u8 = 64;
const MARIADB_XA: u8 = MARIADB_XA_PREPARED | 128;
const MARIADB_START_ALTER: u8 = 2;
const MARIADB_ROLLBACK_ALTER: u8 = 8;

/// Whether the statement after this GTID event of MariaDB changes nothing. With `binlog_alter_two_phase`, an
/// ALTER TABLE is logged when it begins, and again with its whole text when it ends. Other transactions come
/// between, with rows of the table as it was. Only the second one counts, unless it is a rollback.
///
/// Behind number (8), domain (4) and flags (1) are the id of a group commit (8) and an xid, if the flags say
/// so, and then more flags, or zeros.
pub fn alters_later(body: &[u8]) -> bool {
    let flags = body.get(12).copied().unwrap_or(0);
    let at = if flags & MARIADB_GROUP_COMMIT == 0 { 13 } else { 21 };
    let more = body.get(at).copied().unwrap_or(0);
    flags & MARIADB_STANDALONE != 0
        && flags & MARIADB_XA == 0
        && more & (MARIADB_START_ALTER | MARIADB_ROLLBACK_ALTER) != 0
}

/// Whether an XA transaction follows this GTID event of MariaDB, up to its XA_PREPARE. There is no XA START.
pub fn prepares_xa(body: &[u8]) -> bool {
    body.get(12).is_some_and(|flags| flags & MARIADB_XA_PREPARED != 0)
}

/// What a GTID event says about the transaction that follows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GtidEvent {
    /// None for an anonymous transaction.
    pub gtid: Option<Gtid>,
    /// The commit time at the server that first ran it, in µs since 1970 UTC. None before MySQL 8.0.
    pub original_commit_us: Option<u64>,
    /// The commit time at the server that sent it.
    pub immediate_commit_us: Option<u64>,
}

impl GtidEvent {
    /// When it was committed: at the server that first ran it, or if that did not say (0), at the one that
    /// sent it.
    pub fn commit_us(&self) -> Option<u64> {
        let known = |micros: &u64| *micros > 0;
        self.original_commit_us.filter(known).or(self.immediate_commit_us.filter(known))
    }
}

const IMMEDIATE_HAS_ORIGINAL: u64 = 1 << 55;

impl GtidEvent {
    /// Reads an event of one of these kinds. For other kinds the result is empty. `body` is what is between
    /// header and checksum.
    pub fn parse(header: &EventHeader, body: &[u8], base: u64) -> Result<GtidEvent> {
        match header.kind {
            EventKind::GTID | EventKind::ANONYMOUS_GTID => {
                Self::parse_plain(body, base, header.kind == EventKind::ANONYMOUS_GTID)
            }
            EventKind::GTID_TAGGED => Self::parse_tagged(body, base),
            EventKind::MARIADB_GTID => Self::parse_mariadb(body, base, header.server_id),
            _ => Ok(GtidEvent::default()),
        }
    }

    /// MariaDB: number (8), domain (4), flags. The server of the GTID is the one in the event's header.
    pub fn parse_mariadb(body: &[u8], base: u64, server: u32) -> Result<GtidEvent> {
        let mut cursor = Cursor::new(body, base);
        let (number, domain) = (cursor.u64("GTID number")?, cursor.u32("GTID domain")?);
        let gtid = Gtid::MariaDb(DomainGtid { domain, server, number });
        Ok(GtidEvent { gtid: Some(gtid), ..GtidEvent::default() })
    }

    /// `body` is what is between header and checksum; `base` its offset.
    pub fn parse_plain(body: &[u8], base: u64, anonymous: bool) -> Result<GtidEvent> {
        let mut cursor = Cursor::new(body, base);
        cursor.skip(1, "GTID flags")?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(cursor.take(16, "GTID uuid")?);
        let number = cursor.u64("GTID number")?;
        let mut event = GtidEvent::default();
        if !anonymous {
            event.gtid = Some(gtid(&cursor, Origin { uuid, tag: "".into() }, number)?);
        }
        // MySQL 5.6 ends here, 5.7 adds the logical clock (1 + 16 bytes), 8.0 adds commit times of 7 bytes.
        if cursor.remaining() >= 24 && cursor.u8("logical clock type")? == 2 {
            cursor.skip(16, "logical clock")?;
            let immediate = cursor.uint_le(7, "commit time")?;
            event.immediate_commit_us = Some(immediate & !IMMEDIATE_HAS_ORIGINAL);
            event.original_commit_us = event.immediate_commit_us;
            if immediate & IMMEDIATE_HAS_ORIGINAL != 0 {
                event.original_commit_us = Some(cursor.uint_le(7, "original commit time")?);
            }
        }
        Ok(event)
    }

    /// Event 42: fields as (number, value) in the server's own serialization, each byte of the UUID a varint.
    pub fn parse_tagged(body: &[u8], base: u64) -> Result<GtidEvent> {
        let mut cursor = Cursor::new(body, base);
        take_varint(&mut cursor, "serialization version")?;
        take_varint(&mut cursor, "event size")?;
        take_varint(&mut cursor, "last field")?;
        let mut event = GtidEvent::default();
        let (mut uuid, mut number, mut tag) = ([0; 16], 0, Box::<str>::from(""));
        while !cursor.is_empty() {
            match take_varint(&mut cursor, "field number")? {
                0 => drop(take_varint(&mut cursor, "GTID flags")?),
                1 => {
                    for byte in &mut uuid {
                        *byte = take_varint(&mut cursor, "GTID uuid")? as u8;
                    }
                }
                2 => number = take_signed_varint(&mut cursor, "GTID number")? as u64,
                3 => tag = take_tag(&mut cursor)?,
                4 | 5 => drop(take_signed_varint(&mut cursor, "logical clock")?),
                6 => event.immediate_commit_us = Some(take_varint(&mut cursor, "commit time")?),
                7 => event.original_commit_us = Some(take_varint(&mut cursor, "original commit time")?),
                // transaction length, server versions, group ticket: nothing we need comes after them.
                _ => break,
            }
        }
        event.original_commit_us = event.original_commit_us.or(event.immediate_commit_us);
        event.gtid = Some(gtid(&cursor, Origin { uuid, tag }, number)?);
        Ok(event)
    }
}

fn gtid(cursor: &Cursor<'_>, origin: Origin, number: u64) -> Result<Gtid> {
    if number == 0 || number >= NUMBER_MAX {
        return Err(cursor.fail(format!("GTID number {number} is out of range")));
    }
    Ok(Gtid::MySql { origin, number })
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_bytes_give_an_event_or_an_error(bytes: Vec<u8>) {
            let _ = GtidEvent::parse_plain(&bytes, 0, false);
            let _ = GtidEvent::parse_tagged(&bytes, 0);
        }
    }
}
