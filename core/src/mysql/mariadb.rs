//! What only MariaDB has in its log: lists of GTIDs, and compressed events (`log_bin_compress`).

use std::io::Read;

use flate2::bufread::ZlibDecoder;

use crate::cursor::Cursor;
use crate::error::Result;
use crate::mysql::checksum::Checksum;
use crate::mysql::event::{EventKind, HEADER_SIZE};
use crate::mysql::gtid::{Gtid, GtidSet};
use crate::mysql::gtid_domain::DomainGtid;
use crate::transaction_set::TransactionSet as _;

const QUERY_COMPRESSED: u8 = 165;
const ROWS_COMPRESSED_V1: u8 = 166;
const ROWS_COMPRESSED: u8 = 169;
const ROWS_COMPRESSED_LAST: u8 = 171;
const ROWS_V1: u8 = 23;
const ROWS: u8 = 30;
const UPDATES: [u8; 2] = [24, 31];
/// Most bytes that a compressed part may say to hold: the server's own limit of an event.
const UNPACKED_MAX: u64 = 1 << 30;

/// GTID_LIST (163): a count (28 bits, and 4 of flags), then domain (4), server (4), number (8) of each.
pub fn gtid_list(body: &[u8], base: u64) -> Result<GtidSet> {
    let mut cursor = Cursor::new(body, base);
    let count = cursor.u32("GTID list length")? & 0x0fff_ffff;
    let mut set = GtidSet::default();
    for _ in 0..count {
        let (domain, server) = (cursor.u32("GTID domain")?, cursor.u32("GTID server")?);
        let number = cursor.u64("GTID number")?;
        set.add(&Gtid::MariaDb(DomainGtid { domain, server, number }));
    }
    Ok(set)
}

pub fn is_compressed(kind: u8) -> bool {
    (QUERY_COMPRESSED..=ROWS_COMPRESSED_LAST).contains(&kind)
}

/// The plain event that a compressed one stands for, with a new checksum if
/// events have one. Its position at the source stays that of the compressed one.
pub fn unpack_event(event: &[u8], body: &[u8], checksum: Checksum, base: u64) -> Result<Vec<u8>> {
    let mut cursor = Cursor::new(body, base);
    let kind = match event[4] {
        QUERY_COMPRESSED => {
            skip_query_head(&mut cursor)?;
            EventKind::QUERY.0
        }
        kind if kind < ROWS_COMPRESSED => skip_rows_head(&mut cursor, ROWS_V1 + kind - ROWS_COMPRESSED_V1)?,
        kind => skip_rows_head(&mut cursor, ROWS + kind - ROWS_COMPRESSED)?,
    };
    let head = body.len() - cursor.remaining();
    let unpacked = unpack(&mut cursor)?;
    let length = HEADER_SIZE + head + unpacked.len() + checksum.size();
    let mut plain = Vec::with_capacity(length);
    plain.extend_from_slice(&event[..HEADER_SIZE]);
    plain[4] = kind;
    plain[9..13].copy_from_slice(&(length as u32).to_le_bytes());
    plain.extend_from_slice(&body[..head]);
    plain.extend_from_slice(&unpacked);
    checksum.append(&mut plain);
    Ok(plain)
}

/// A QUERY up to its SQL: fixed part, status variables, database and its zero byte.
fn skip_query_head(cursor: &mut Cursor<'_>) -> Result<()> {
    cursor.skip(8, "query head")?;
    let database = cursor.u8("database length")?;
    cursor.skip(2, "error code")?;
    let variables = cursor.u16("status variables length")?;
    cursor.skip(usize::from(variables) + usize::from(database) + 1, "status variables and database")
}

/// A row event up to its images; gives back `kind`.
fn skip_rows_head(cursor: &mut Cursor<'_>, kind: u8) -> Result<u8> {
    cursor.skip(8, "table id and flags")?;
    if kind >= ROWS {
        let extra = cursor.u16("extra data length")?;
        cursor.skip(usize::from(extra).saturating_sub(2), "extra data")?;
    }
    let columns = usize::try_from(cursor.lenenc("column count")?).unwrap_or(usize::MAX);
    let images = if UPDATES.contains(&kind) { 2 } else { 1 };
    cursor.skip(columns.div_ceil(8).saturating_mul(images), "columns present")?;
    Ok(kind)
}

/// MariaDB's compressed parts: a byte with the algorithm (0: zlib) and the width of the length, the length
/// big-endian, then a zlib stream.
fn unpack(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let start = *cursor;
    let head = cursor.u8("compression header")?;
    if head & 0x80 == 0 || head & 0x70 != 0 || !matches!(head & 7, 1..=4) {
        return Err(start.fail(format!("compression header {head:#04x} is not known")));
    }
    let length = cursor.uint_be((head & 7).into(), "unpacked length")?;
    if length > UNPACKED_MAX {
        return Err(start.fail(format!("{length} unpacked bytes are more than an event can have")));
    }
    let mut unpacked = Vec::new();
    let stream = cursor.rest();
    let mut decoder = ZlibDecoder::new(stream);
    if let Err(error) = decoder.by_ref().take(length + 1).read_to_end(&mut unpacked) {
        return Err(start.fail(format!("a compressed event cannot be unpacked: {error}")));
    }
    if unpacked.len() as u64 != length {
        return Err(
            start.fail(format!("a compressed event holds {} bytes instead of {length}", unpacked.len()))
        );
    }
    if decoder.total_in() != stream.len() as u64 {
        return Err(start.fail("a compressed event with bytes behind its end"));
    }
    Ok(unpacked)
}
