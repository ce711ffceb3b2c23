//! Binary-log events: the header every event has, and the walk over a slice of events.
//!
//! Facts of the wire are from MySQL's "Binary Log Event" protocol pages, version 4 (MySQL 5.0 and later,
//! MariaDB).

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::mysql::checksum::{until_zero, Checksum, CHECKSUM_SIZE};
use crate::rows::RowsKind;

/// The first four bytes of every binlog file. Positions count from the first of them.
pub const MAGIC: [u8; 4] = *b"\xfebin";
/// Version 4 headers: timestamp(4) kind(1) server id(4) size(4) end position(4) flags(2).
pub const HEADER_SIZE: usize = 19;

/// An event's type code. Unknown codes keep their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKind(pub u8);

macro_rules! kinds {
    ($($code:literal $name:ident,)*) => {
        impl EventKind {
            $(pub const $name: Self = Self($code);)*

            /// The type's name in upper case; None: unknown.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    0 UNKNOWN,
    1 START_V3,
    2 QUERY,
    3 STOP,
    4 ROTATE,
    5 INTVAR,
    6 LOAD,
    7 SLAVE,
    8 CREATE_FILE,
    9 APPEND_BLOCK,
    10 EXEC_LOAD,
    11 DELETE_FILE,
    12 NEW_LOAD,
    13 RAND,
    14 USER_VAR,
    15 FORMAT_DESCRIPTION,
    16 XID,
    17 BEGIN_LOAD_QUERY,
    18 EXECUTE_LOAD_QUERY,
    19 TABLE_MAP,
    20 PRE_GA_WRITE_ROWS,
    21 PRE_GA_UPDATE_ROWS,
    22 PRE_GA_DELETE_ROWS,
    23 WRITE_ROWS_V1,
    24 UPDATE_ROWS_V1,
    25 DELETE_ROWS_V1,
    26 INCIDENT,
    27 HEARTBEAT,
    28 IGNORABLE,
    29 ROWS_QUERY,
    30 WRITE_ROWS,
    31 UPDATE_ROWS,
    32 DELETE_ROWS,
    33 GTID,
    34 ANONYMOUS_GTID,
    35 PREVIOUS_GTIDS,
    36 TRANSACTION_CONTEXT,
    37 VIEW_CHANGE,
    38 XA_PREPARE,
    39 PARTIAL_UPDATE_ROWS,
    40 TRANSACTION_PAYLOAD,
    41 HEARTBEAT_V2,
    42 GTID_TAGGED,
    160 MARIADB_ANNOTATE_ROWS,
    161 MARIADB_BINLOG_CHECKPOINT,
    162 MARIADB_GTID,
    163 MARIADB_GTID_LIST,
    164 MARIADB_START_ENCRYPTION,
    165 MARIADB_QUERY_COMPRESSED,
    166 MARIADB_WRITE_ROWS_COMPRESSED_V1,
    167 MARIADB_UPDATE_ROWS_COMPRESSED_V1,
    168 MARIADB_DELETE_ROWS_COMPRESSED_V1,
    169 MARIADB_WRITE_ROWS_COMPRESSED,
    170 MARIADB_UPDATE_ROWS_COMPRESSED,
    171 MARIADB_DELETE_ROWS_COMPRESSED,
}

impl EventKind {
    /// None: the event has no row images. Some kinds have images that this core cannot decode.
    pub fn rows(self) -> Option<RowsKind> {
        match self.0 {
            20 | 23 | 30 | 166 | 169 => Some(RowsKind::Insert),
            21 | 24 | 31 | 39 | 167 | 170 => Some(RowsKind::Update),
            22 | 25 | 32 | 168 | 171 => Some(RowsKind::Delete),
            _ => None,
        }
    }

    /// Whether this is a row event of a relay log, which has no compressed events.
    #[inline]
    pub fn is_rows(self) -> bool {
        matches!(self.0, 20..=25 | 30..=32 | 39)
    }

    /// Whether the event begins a transaction, or a single statement, and gives its GTID.
    #[inline]
    pub fn is_gtid(self) -> bool {
        matches!(self, Self::GTID | Self::ANONYMOUS_GTID | Self::GTID_TAGGED | Self::MARIADB_GTID)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// When the statement began, in seconds since 1970.
    pub timestamp: u32,
    pub kind: EventKind,
    pub server_id: u32,
    /// Size of the whole event: header, body and checksum.
    pub size: u32,
    /// Position after the event in the source's file, modulo 2^32. 0: the event is in no file.
    pub end_position: u32,
    pub flags: u16,
}

impl EventHeader {
    /// Set in a FORMAT_DESCRIPTION while its file is open (or was not closed well).
    pub const FLAG_IN_USE: u16 = 0x1;
    /// The sender made the event for this connection. It is in no file.
    pub const FLAG_ARTIFICIAL: u16 = 0x20;

    /// Servers that do not know the event may skip it. Row events that were taken back have this flag, too.
    pub const FLAG_IGNORABLE: u16 = 0x80;

    /// Inlined, because a `Result` with so many fields would go through memory. It would be written in pieces
    /// and read at once, which is slow.
    #[inline(always)]
    pub fn parse(bytes: &[u8], offset: u64) -> Result<Self> {
        let head: &[u8; HEADER_SIZE] = Cursor::new(bytes, offset).chunk("event header")?;
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let size = u32_at(9);
        if (size as usize) < HEADER_SIZE {
            return Err(DecodeError::new(format!("an event cannot be {size} bytes long"), offset));
        }
        Ok(Self {
            timestamp: u32_at(0),
            kind: EventKind(head[4]),
            server_id: u32_at(5),
            size,
            end_position: u32_at(13),
            flags: u16::from_le_bytes([head[17], head[18]]),
        })
    }
}

/// One event in memory.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub header: EventHeader,
    /// The offset of the event's first byte.
    pub offset: u64,
    /// The whole event as it is in the file.
    pub raw: &'a [u8],
    /// What is between header and checksum.
    pub body: &'a [u8],
}

impl<'a> Event<'a> {
    /// The event at the start of `bytes`, which must contain all of it.
    pub fn parse(bytes: &'a [u8], offset: u64, checksum: Checksum) -> Result<Self> {
        let header = EventHeader::parse(bytes, offset)?;
        let Some(raw) = bytes.get(..header.size as usize) else {
            let reason = format!("event of {} bytes, but only {} are left", header.size, bytes.len());
            return Err(DecodeError::new(reason, offset));
        };
        Self::whole(header, raw, offset, checksum)
    }

    /// The event of a parsed header and exactly its bytes.
    pub fn whole(header: EventHeader, raw: &'a [u8], offset: u64, checksum: Checksum) -> Result<Self> {
        let end = raw.len().checked_sub(trailer_size(header.kind, checksum));
        match end.and_then(|end| raw.get(HEADER_SIZE..end)) {
            Some(body) => Ok(Self { header, offset, raw, body }),
            None => Err(DecodeError::new(format!("event of {} bytes is too short", raw.len()), offset)),
        }
    }

    #[inline]
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.body, self.offset + HEADER_SIZE as u64)
    }
}

/// Number of bytes after the body. For a FORMAT_DESCRIPTION it is 0: its body says how it ends.
fn trailer_size(kind: EventKind, checksum: Checksum) -> usize {
    if kind == EventKind::FORMAT_DESCRIPTION {
        0
    } else {
        checksum.size()
    }
}

/// The events of a slice, in order. Ends after the first error.
pub struct Events<'a> {
    bytes: &'a [u8],
    base: u64,
    position: usize,
    checksum: Checksum,
}

impl<'a> Events<'a> {
    /// `bytes` begin with an event. `base` is the offset of their first byte.
    pub fn new(bytes: &'a [u8], base: u64, checksum: Checksum) -> Self {
        Self { bytes, base, position: 0, checksum }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return None;
        }
        let event = Event::parse(rest, self.base + self.position as u64, self.checksum);
        self.position = match &event {
            Ok(event) => self.position + event.raw.len(),
            Err(_) => self.bytes.len(),
        };
        Some(event)
    }
}

/// The first event of a file, which says how the others are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatDescription {
    pub binlog_version: u16,
    pub server_version: String,
    pub created: u32,
    pub header_size: u8,
    /// Size of the fixed part of each kind's body, by code - 1.
    pub post_header_sizes: Vec<u8>,
    pub checksum: Checksum,
}

impl FormatDescription {
    /// `body`: everything after the header, with the event's own checksum, which it always has if the server
    /// knows checksums.
    pub fn parse(event: &Event<'_>) -> Result<Self> {
        let mut cursor = event.cursor();
        let binlog_version = cursor.u16("binlog version")?;
        if binlog_version != 4 {
            return Err(
                cursor.fail(format!("binlog version {binlog_version} is not supported; version 4 is"))
            );
        }
        let version = until_zero(cursor.take(50, "server version")?);
        let server_version = String::from_utf8_lossy(version).into_owned();
        let created = cursor.u32("created")?;
        let header_size = cursor.u8("event header length")?;
        if usize::from(header_size) != HEADER_SIZE {
            return Err(
                cursor.fail(format!("event headers of {header_size} bytes are not supported; 19 bytes are"))
            );
        }
        let mut sizes = cursor.rest();
        let announced = Checksum::announced_by(event.body, event.offset + HEADER_SIZE as u64)?;
        if announced.is_some() {
            // The algorithm and the checksum follow the sizes.
            sizes = &sizes[..sizes.len() - 1 - CHECKSUM_SIZE];
        }
        Ok(Self {
            binlog_version,
            server_version,
            created,
            header_size,
            post_header_sizes: sizes.to_vec(),
            checksum: announced.unwrap_or_default(),
        })
    }

    pub fn is_mariadb(&self) -> bool {
        self.server_version.contains("MariaDB")
    }

    /// How the server prints JSON.
    pub fn json_style(&self) -> Style {
        Style { bare_doubles: self.server_version.starts_with("5.") }
    }

    pub fn post_header_size(&self, kind: EventKind) -> Option<u8> {
        self.post_header_sizes.get(usize::from(kind.0).checked_sub(1)?).copied()
    }

    /// Bytes of a table id: 4 in logs of early 5.1 servers, 6 since.
    pub fn table_id_size(&self, kind: EventKind) -> usize {
        if self.post_header_size(kind) == Some(6) {
            4
        } else {
            6
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn event(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 0, 0, 0, kind, 1, 0, 0, 0];
        bytes.extend((19 + body.len() as u32).to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn events_of_a_slice_come_in_order_and_a_cut_one_is_an_error() {
        let mut bytes = event(16, &[7; 8]);
        bytes.extend(event(99, b"?"));
        let cut = bytes.len() - 1;
        let kinds: Vec<_> =
            Events::new(&bytes, 4, Checksum::None).map(|e| e.unwrap().header.kind.0).collect();
        assert_eq!(kinds, [16, 99]);
        let mut events = Events::new(&bytes[..cut], 4, Checksum::None);
        assert!(events.next().unwrap().is_ok());
        assert_eq!(events.next().unwrap().unwrap_err().offset(), 31);
        assert!(events.next().is_none());
    }
}
