//! FORMAT_DESCRIPTION and PREVIOUS_GTIDS: the head of a segment.

use crate::error::Result;
use crate::mysql::checksum::{Checksum, CHECKSUM_SIZE};
use crate::mysql::event::{EventHeader, EventKind, HEADER_SIZE, MAGIC};
use crate::mysql::gtid::GtidSet;

const FLAG_IN_USE: u8 = 0x01;

/// How a source's events are written.
pub struct Format {
    /// The FORMAT_DESCRIPTION of a segment's head.
    pub event: Vec<u8>,
    pub checksum: Checksum,
}

impl Format {
    /// Reads the source's event and makes that of a segment's head from it: its position is right after the
    /// magic, and the file is not in use.
    pub fn parse(event: &[u8], offset: u64) -> Result<Format> {
        let body = event.get(HEADER_SIZE..).unwrap_or_default();
        let announced = Checksum::announced_by(body, offset + HEADER_SIZE as u64)?;
        let mut event = event.to_vec();
        let end = event.len();
        event[17] &= !FLAG_IN_USE;
        event[13..17].copy_from_slice(&(MAGIC.len() as u32 + end as u32).to_le_bytes());
        if announced.is_some() {
            // Servers write a CRC32 in this event, whatever the algorithm of the others is.
            event.truncate(end - CHECKSUM_SIZE);
            Checksum::Crc32.append(&mut event);
        }
        Ok(Format { event, checksum: announced.unwrap_or_default() })
    }
}

/// Type 35 (PREVIOUS_GTIDS) has a post-header length in the table of event types that follows the fixed part.
pub fn has_gtids(format: &[u8]) -> bool {
    const FIXED: usize = HEADER_SIZE + 2 + 50 + 4 + 1;
    let version = String::from_utf8_lossy(format.get(HEADER_SIZE + 2..HEADER_SIZE + 52).unwrap_or_default())
        .into_owned();
    format.len() >= FIXED + usize::from(EventKind::PREVIOUS_GTIDS.0) + 5 && !version.contains("MariaDB")
}

/// Whether two formats are the same, except for creation times, flags and checksums.
pub fn same_format(left: &[u8], right: &[u8]) -> bool {
    const CREATED: usize = HEADER_SIZE + 52;
    left.len() == right.len()
        && left.get(HEADER_SIZE..CREATED) == right.get(HEADER_SIZE..CREATED)
        && left.get(CREATED + 4..left.len() - 4) == right.get(CREATED + 4..right.len() - 4)
}

pub fn previous_gtids(executed: &GtidSet, format: &Format, position: usize) -> Vec<u8> {
    let body = executed.encode();
    let length = HEADER_SIZE + body.len() + format.checksum.size();
    let mut event = format.event[..4].to_vec();
    event.push(EventKind::PREVIOUS_GTIDS.0);
    event.extend_from_slice(&format.event[5..9]);
    event.extend_from_slice(&(length as u32).to_le_bytes());
    event.extend_from_slice(&((position + length) as u32).to_le_bytes());
    event.extend_from_slice(&EventHeader::FLAG_IGNORABLE.to_le_bytes());
    event.extend_from_slice(&body);
    format.checksum.append(&mut event);
    event
}
