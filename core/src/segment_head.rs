//! FORMAT_DESCRIPTION and PREVIOUS_GTIDS: the head of a segment.

use crate::error::{DecodeError, Result};
use crate::event::{EventHeader, EventKind, HEADER_SIZE, MAGIC};
use crate::gtid::GtidSet;

const FLAG_IN_USE: u8 = 0x01;

/// How a source's events are written.
pub struct Format {
    /// As it goes into a segment's head.
    pub event: Vec<u8>,
    pub checksum: bool,
}

impl Format {
    /// Fits the event for a segment's head: it stands right behind the magic, and the file is not in use.
    pub fn parse(event: &[u8], offset: u64) -> Result<Format> {
        let fail = |reason: String| DecodeError::new(reason, offset);
        let end = event.len();
        if end < HEADER_SIZE + 2 + 50 + 4 + 1 {
            return Err(fail(String::from("the format description is cut off")));
        }
        // Servers before 5.6.1 know no checksums: their last byte is a header length.
        let algorithm = event[end - 5];
        let known = known_checksum(&event[HEADER_SIZE + 2..HEADER_SIZE + 52]);
        if known && algorithm > 1 {
            return Err(fail(format!("binlog checksum algorithm {algorithm} is unknown")));
        }
        let checksum = known && algorithm == 1;
        let mut event = event.to_vec();
        event[17] &= !FLAG_IN_USE;
        event[13..17].copy_from_slice(&(MAGIC.len() as u32 + end as u32).to_le_bytes());
        if known {
            // Servers write a CRC32 here whatever the algorithm is.
            let crc = crc32fast::hash(&event[..end - 4]);
            event[end - 4..].copy_from_slice(&crc.to_le_bytes());
        }
        Ok(Format { event, checksum })
    }
}

/// Whether a server of this version ends its events with checksums (MySQL 5.6.1, MariaDB 5.3) and says so.
fn known_checksum(version: &[u8]) -> bool {
    let text = String::from_utf8_lossy(version);
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0_u32));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next()) >= (5, 6, 1)
}

/// Type 35 (PREVIOUS_GTIDS) has a post-header length in the table of event types that follows the fixed part.
pub fn has_gtids(format: &[u8]) -> bool {
    const FIXED: usize = HEADER_SIZE + 2 + 50 + 4 + 1;
    let version = String::from_utf8_lossy(format.get(HEADER_SIZE + 2..HEADER_SIZE + 52).unwrap_or_default())
        .into_owned();
    format.len() >= FIXED + usize::from(EventKind::PREVIOUS_GTIDS.0) + 5 && !version.contains("MariaDB")
}

/// The same but for creation times, flags and checksum.
pub fn same_format(left: &[u8], right: &[u8]) -> bool {
    const CREATED: usize = HEADER_SIZE + 52;
    left.len() == right.len()
        && left[HEADER_SIZE..CREATED] == right[HEADER_SIZE..CREATED]
        && left[CREATED + 4..left.len() - 4] == right[CREATED + 4..right.len() - 4]
}

pub fn previous_gtids(executed: &GtidSet, format: &Format, position: usize) -> Vec<u8> {
    let body = executed.encode();
    let length = HEADER_SIZE + body.len() + if format.checksum { 4 } else { 0 };
    let mut event = format.event[..4].to_vec();
    event.push(EventKind::PREVIOUS_GTIDS.0);
    event.extend_from_slice(&format.event[5..9]);
    event.extend_from_slice(&(length as u32).to_le_bytes());
    event.extend_from_slice(&((position + length) as u32).to_le_bytes());
    event.extend_from_slice(&EventHeader::FLAG_IGNORABLE.to_le_bytes());
    event.extend_from_slice(&body);
    if format.checksum {
        let crc = crc32fast::hash(&event);
        event.extend_from_slice(&crc.to_le_bytes());
    }
    event
}
