//! The events of a transaction, with those inside compressed transactions and MariaDB's compressed events as
//! if they were plain.

use crate::error::{DecodeError, Result};
use crate::mysql::checksum::Checksum;
use crate::mysql::event::{Event, EventHeader, EventKind};
use crate::mysql::log_file::LogFile;
use crate::mysql::mariadb;
use crate::mysql::payload::Payload;
use crate::window::Direction;

/// An event. Its number counts the events of the walk.
pub struct Seen<'a> {
    pub event: Event<'a>,
    pub number: u64,
    /// Position in the file of the event, or of the event that it is packed in.
    pub position: u64,
    /// Whether it was packed, so that its bytes are at no place of the file.
    pub packed: bool,
}

/// Bytes of a row event that say its table, and whether it ends a statement.
const ROWS_HEAD: usize = 8;

/// Gives the events from `position` to `take`, until that returns false. Returns the position behind the last
/// one; None: the file ended before. `light`: row events have only their first bytes. `number`: of the event
/// before.
pub fn each(
    file: &mut LogFile,
    (mut position, limit): (u64, u64),
    mut number: u64,
    light: bool,
    take: &mut dyn FnMut(&Seen<'_>) -> Result<bool>,
) -> Result<Option<u64>> {
    let mut unpacked = Vec::new();
    while position < limit {
        let header = file.header(position, limit)?;
        let end = position + u64::from(header.size);
        let base = file.base();
        let mut seen = |event: Event<'_>, packed: bool| {
            number += 1;
            take(&Seen { event, number, position, packed })
        };
        let more = match header.kind {
            EventKind::TRANSACTION_PAYLOAD => {
                let event = file.event(position, header, Direction::Forward)?;
                let mut payload = Payload::open(event.body, header.end_position, base + position)?;
                let mut more = true;
                while payload.next_into(&mut unpacked)? {
                    let inner = EventHeader::parse(&unpacked, base + position)?;
                    more = seen(Event::whole(inner, &unpacked, base + position, Checksum::None)?, true)?;
                }
                more
            }
            // `LogFile` has read it. In a file that is open, its checksum is that of the closed file.
            EventKind::FORMAT_DESCRIPTION => true,
            EventKind::MARIADB_START_ENCRYPTION => {
                let reason = "the rest of the file is encrypted (MariaDB); it cannot be read";
                return Err(DecodeError::new(reason, base + position));
            }
            kind if mariadb::is_compressed(kind.0) => {
                let event = file.event(position, header, Direction::Forward)?;
                let plain = mariadb::unpack_event(event.raw, event.body, Checksum::None, base + position)?;
                seen(Event::parse(&plain, base + position, Checksum::None)?, true)?
            }
            kind if light && kind.is_rows() => {
                let body = file.body_start(position, header, ROWS_HEAD)?;
                seen(Event { header, offset: base + position, raw: &[], body }, false)?
            }
            _ => seen(file.event(position, header, Direction::Forward)?, false)?,
        };
        position = end;
        if !more {
            return Ok(Some(position));
        }
    }
    Ok(None)
}
