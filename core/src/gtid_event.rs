//! The events that open a transaction: GTID, ANONYMOUS_GTID, GTID_TAGGED and MariaDB's GTID.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::event::{Event, EventKind};

/// Who a transaction is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Gtid {
    #[default]
    Anonymous,
    Mysql {
        uuid: [u8; 16],
        /// Empty: none.
        tag: String,
        number: u64,
    },
    MariaDb {
        domain: u32,
        server_id: u32,
        sequence: u64,
    },
}

impl std::fmt::Display for Gtid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anonymous => out.write_str("ANONYMOUS"),
            Self::MariaDb { domain, server_id, sequence } => write!(out, "{domain}-{server_id}-{sequence}"),
            Self::Mysql { uuid, tag, number } => {
                for (index, byte) in uuid.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        out.write_str("-")?;
                    }
                    write!(out, "{byte:02x}")?;
                }
                if !tag.is_empty() {
                    write!(out, ":{tag}")?;
                }
                write!(out, ":{number}")
            }
        }
    }
}

/// What a GTID event says of its transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GtidEvent {
    pub gtid: Gtid,
    pub flags: u8,
    pub last_committed: Option<i64>,
    pub sequence_number: Option<i64>,
    /// Microseconds since 1970 at the server that wrote this log; None before MySQL 8.0.1.
    pub immediate_commit_us: Option<u64>,
    /// The same at the server that first ran the transaction.
    pub original_commit_us: Option<u64>,
    /// Bytes of all its events, this one included.
    pub transaction_length: Option<u64>,
}

impl GtidEvent {
    /// MariaDB: a lone statement without a COMMIT or XID event at its end.
    pub const MARIADB_FLAG_STANDALONE: u8 = 1;

    pub fn parse(event: &Event<'_>) -> Result<Self> {
        let cursor = event.cursor();
        match event.header.kind {
            EventKind::GTID | EventKind::ANONYMOUS_GTID => parse_plain(cursor, event.header.kind),
            EventKind::GTID_TAGGED => parse_tagged(cursor),
            EventKind::MARIADB_GTID => parse_mariadb(cursor, event.header.server_id),
            other => Err(cursor.fail(format!("event type {} is not a GTID event", other.0))),
        }
    }
}

fn parse_plain(mut cursor: Cursor<'_>, kind: EventKind) -> Result<GtidEvent> {
    // The two commit times are 7 bytes; the top bit of the first says that the second follows.
    const ORIGINAL_FOLLOWS: u64 = 1 << 55;
    let flags = cursor.u8("GTID flags")?;
    let uuid = take_uuid(&mut cursor)?;
    let number = cursor.u64("GTID number")?;
    let mut event = GtidEvent { flags, ..GtidEvent::default() };
    if kind == EventKind::GTID {
        event.gtid = Gtid::Mysql { uuid, tag: String::new(), number };
    }
    // Since 5.7: a type code 2 and the logical timestamps.
    if cursor.is_empty() || cursor.u8("logical timestamp type")? != 2 || cursor.remaining() < 16 {
        return Ok(event);
    }
    event.last_committed = Some(cursor.i64("last committed")?);
    event.sequence_number = Some(cursor.i64("sequence number")?);
    if cursor.remaining() < 7 {
        return Ok(event);
    }
    let immediate = cursor.uint_le(7, "immediate commit timestamp")?;
    event.immediate_commit_us = Some(immediate & !ORIGINAL_FOLLOWS);
    event.original_commit_us = if immediate & ORIGINAL_FOLLOWS == 0 {
        event.immediate_commit_us
    } else {
        Some(cursor.uint_le(7, "original commit timestamp")?)
    };
    if !cursor.is_empty() {
        event.transaction_length = Some(cursor.lenenc("transaction length")?);
    }
    Ok(event)
}

/// Written by MySQL's serialization library (libs/mysql/serialization): version, size, last field that must be
/// known, then fields, each with its number. Integers are of variable length, those of the UUID too.
fn parse_tagged(mut cursor: Cursor<'_>) -> Result<GtidEvent> {
    let version = varlen(&mut cursor, "serialization version")?;
    if version != 1 {
        return Err(cursor.fail(format!("GTID event serialization version {version} is not supported")));
    }
    varlen(&mut cursor, "serialized size")?;
    let last_needed = varlen(&mut cursor, "last field that must be known")?;
    if last_needed > 12 {
        return Err(
            cursor.fail(format!("GTID event has a field {last_needed} that must be known, but is not"))
        );
    }
    let mut event = GtidEvent::default();
    let (mut uuid, mut tag, mut number) = ([0; 16], String::new(), 0);
    while !cursor.is_empty() {
        match varlen(&mut cursor, "GTID field number")? {
            0 => event.flags = varlen(&mut cursor, "GTID flags")? as u8,
            1 => {
                for byte in &mut uuid {
                    *byte = varlen(&mut cursor, "GTID uuid")? as u8;
                }
            }
            2 => number = varlen_signed(&mut cursor, "GTID number")? as u64,
            3 => {
                let length = varlen(&mut cursor, "GTID tag length")?;
                let bytes = cursor.take(usize::try_from(length).unwrap_or(usize::MAX), "GTID tag")?;
                tag = String::from_utf8_lossy(bytes).into_owned();
            }
            4 => event.last_committed = Some(varlen_signed(&mut cursor, "last committed")?),
            5 => event.sequence_number = Some(varlen_signed(&mut cursor, "sequence number")?),
            6 => event.immediate_commit_us = Some(varlen(&mut cursor, "immediate commit timestamp")?),
            7 => event.original_commit_us = Some(varlen(&mut cursor, "original commit timestamp")?),
            8 => event.transaction_length = Some(varlen(&mut cursor, "transaction length")?),
            9..=11 => drop(varlen(&mut cursor, "GTID event field")?),
            // Fields of later servers have no length of their own; all that may follow can be ignored.
            _ => break,
        }
    }
    event.original_commit_us = event.original_commit_us.or(event.immediate_commit_us);
    event.gtid = Gtid::Mysql { uuid, tag, number };
    Ok(event)
}

fn parse_mariadb(mut cursor: Cursor<'_>, server_id: u32) -> Result<GtidEvent> {
    let sequence = cursor.u64("GTID sequence")?;
    let domain = cursor.u32("GTID domain")?;
    let flags = cursor.u8("GTID flags")?;
    Ok(GtidEvent { gtid: Gtid::MariaDb { domain, server_id, sequence }, flags, ..GtidEvent::default() })
}

fn take_uuid(cursor: &mut Cursor<'_>) -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(cursor.take(16, "GTID uuid")?);
    Ok(uuid)
}

/// MySQL's variable-length integer: as many bytes follow the first as it has trailing one bits; the value is what
/// stands above them.
pub fn varlen(cursor: &mut Cursor<'_>, what: &'static str) -> Result<u64> {
    let first = cursor.u8(what)?;
    let more = first.trailing_ones() as usize;
    if more >= 7 {
        // 7: the first byte is all marker (and a zero bit), 8: all marker.
        return cursor.uint_le(more, what);
    }
    let high = cursor.uint_le(more, what)?;
    Ok((u64::from(first) >> (more + 1)) | (high << (7 - more)))
}

/// The sign is the lowest bit; negative values count down from -1.
fn varlen_signed(cursor: &mut Cursor<'_>, what: &'static str) -> Result<i64> {
    let value = varlen(cursor, what)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_length_integers_of_every_width() {
        let read = |bytes: &[u8]| varlen(&mut Cursor::new(bytes, 0), "x").unwrap();
        assert_eq!(read(&[0b10]), 1);
        assert_eq!(read(&[0b1111_1110]), 127);
        assert_eq!(read(&[0b0000_0001, 0b10]), 128);
        assert_eq!(read(&[0x7f, 1, 0, 0, 0, 0, 0, 0]), 1);
        assert_eq!(read(&[0xff, 1, 0, 0, 0, 0, 0, 0, 0x80]), 0x8000_0000_0000_0001);
        assert_eq!(varlen_signed(&mut Cursor::new(&[0b110], 0), "x").unwrap(), -2);
    }
}
