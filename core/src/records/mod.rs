//! Segments of records, for logs whose bytes no server wrote as a file.
//!
//! A file begins with [`MAGIC`] and a record of the kind [`HEAD`]. Each record has a header of 21 bytes,
//! little-endian: the number of bytes behind the header (4), its kind (1), its place in the source's own log
//! (8), the CRC32 of these 13 bytes, and the CRC32 of the bytes behind the header. So a record can be passed
//! without a look at its bytes. What the kinds mean is the format's own matter.

mod file;

pub use file::RecordFile;

use crate::crc32::crc32;
use crate::error::{DecodeError, Result};

pub const MAGIC: [u8; 4] = *b"PNST";
pub const HEADER_SIZE: usize = 21;
/// The kind of a file's first record: a JSON object with the names of the format and of its version.
pub const HEAD: u8 = b'h';
/// Bytes of the header before its checksums.
const NAMED: usize = 13;

/// The header of a record that was read, at a position of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// With the header.
    pub size: u64,
    checksum: u32,
    pub kind: u8,
    pub place: u64,
}

/// A record. `offset`: of its first byte in the log.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    pub kind: u8,
    pub place: u64,
    pub body: &'a [u8],
    pub offset: u64,
    /// With the header.
    pub raw: &'a [u8],
}

impl Header {
    /// `offset`: of the header, for errors.
    pub fn parse(bytes: &[u8], offset: u64) -> Result<Self> {
        let Some((head, _)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
            return Err(DecodeError::new("a record is cut off", offset));
        };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if crc32(&head[..NAMED]) != number(NAMED) {
            return Err(DecodeError::new("a record is damaged: the checksum of its header is wrong", offset));
        }
        let mut place = [0; 8];
        place.copy_from_slice(&head[5..NAMED]);
        Ok(Self {
            size: HEADER_SIZE as u64 + u64::from(number(0)),
            checksum: number(NAMED + 4),
            kind: head[4],
            place: u64::from_le_bytes(place),
        })
    }
}

impl<'a> Record<'a> {
    /// `raw`: the bytes that the header says. They are not verified.
    fn of(header: Header, raw: &'a [u8], offset: u64) -> Self {
        let body = raw.get(HEADER_SIZE..).unwrap_or_default();
        Self { kind: header.kind, place: header.place, body, offset, raw }
    }

    /// `raw`: the bytes that the header says.
    pub fn whole(header: Header, raw: &'a [u8], offset: u64) -> Result<Self> {
        let record = Self::of(header, raw, offset);
        if crc32(record.body) != header.checksum {
            return Err(DecodeError::new("a record is damaged: its checksum is wrong", offset));
        }
        Ok(record)
    }

    /// The first record of `bytes`; None: it is cut off.
    pub fn first(bytes: &'a [u8], offset: u64) -> Result<Option<Self>> {
        if bytes.len() < HEADER_SIZE {
            return Ok(None);
        }
        let header = Header::parse(bytes, offset)?;
        match usize::try_from(header.size).ok().and_then(|size| bytes.get(..size)) {
            Some(raw) => Self::whole(header, raw, offset).map(Some),
            None => Ok(None),
        }
    }
}

/// Appends a record. Bodies have less than 4 GiB.
pub fn append(kind: u8, place: u64, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.push(kind);
    out.extend_from_slice(&place.to_le_bytes());
    let checksum = crc32(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&crc32(body).to_le_bytes());
    out.extend_from_slice(body);
}
