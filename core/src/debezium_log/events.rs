//! Writes events of a binary log, in the packets in which a server would send them.

use crate::checksum::Checksum;
use crate::event::{EventHeader, EventKind};
use crate::gtid_event::MARIADB_STANDALONE;

const PACKET_MAX: usize = 0xff_ffff;
/// The server id of all events. The log follows topics, so there is no server that could have another one.
const SERVER_ID: u32 = 1;
/// Sizes of the fixed parts of event bodies, by code - 1. The list ends before PREVIOUS_GTIDS: GTIDs of this
/// log have domains, which that event cannot hold.
const POST_HEADER_SIZES: [u8; 34] = [
    56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 92, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2, 0, 0, 0, 10, 10, 10,
    42, 42,
];
const VERSION: &str = "8.0.0-penstock-topics";
/// STRICT_TRANS_TABLES and NO_BACKSLASH_ESCAPES.
const SQL_MODE: u64 = 1 << 21 | 1 << 20;
/// utf8mb4_general_ci: the statements' character set.
const UTF8MB4: u16 = 45;

/// Packets that hold events.
#[derive(Default)]
pub struct Packets {
    pub bytes: Vec<u8>,
}

impl Packets {
    /// Appends an event. `timestamp`: seconds since 1970.
    pub fn event(&mut self, kind: EventKind, timestamp: u32, flags: u16, body: &[u8]) {
        let size = crate::event::HEADER_SIZE + body.len() + crate::checksum::CHECKSUM_SIZE;
        let mut event = Vec::with_capacity(size + 1);
        event.push(0);
        event.extend(timestamp.to_le_bytes());
        event.push(kind.0);
        event.extend(SERVER_ID.to_le_bytes());
        event.extend((size as u32).to_le_bytes());
        event.extend([0; 4]);
        event.extend(flags.to_le_bytes());
        event.extend_from_slice(body);
        let sum = crc32fast::hash(&event[1..]);
        event.extend(sum.to_le_bytes());
        self.packets(&event);
    }

    /// A payload as packets; one that fills its last packet is followed by an empty one.
    fn packets(&mut self, mut payload: &[u8]) {
        loop {
            let length = payload.len().min(PACKET_MAX);
            self.bytes.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
            self.bytes.push(0);
            self.bytes.extend_from_slice(&payload[..length]);
            payload = &payload[length..];
            if length < PACKET_MAX {
                return;
            }
        }
    }

    /// The artificial event that says at which position of the source the log continues.
    pub fn rotate(&mut self, file: &str, position: u64) {
        let mut body = position.to_le_bytes().to_vec();
        body.extend_from_slice(file.as_bytes());
        self.event(EventKind::ROTATE, 0, EventHeader::FLAG_ARTIFICIAL, &body);
    }

    pub fn format_description(&mut self) {
        let mut body = 4u16.to_le_bytes().to_vec();
        body.extend_from_slice(VERSION.as_bytes());
        body.resize(2 + 50, 0);
        body.extend([0; 4]);
        body.push(crate::event::HEADER_SIZE as u8);
        body.extend(POST_HEADER_SIZES);
        body.push(Checksum::Crc32 as u8);
        self.event(EventKind::FORMAT_DESCRIPTION, 0, 0, &body);
    }

    /// Begins a transaction. `standalone`: it is one statement, and has no end of its own.
    pub fn gtid(&mut self, timestamp: u32, domain: u32, number: u64, standalone: bool) {
        let mut body = number.to_le_bytes().to_vec();
        body.extend(domain.to_le_bytes());
        body.push(if standalone { MARIADB_STANDALONE } else { 0 });
        body.extend([0; 6]);
        self.event(EventKind::MARIADB_GTID, timestamp, 0, &body);
    }

    /// What the receiver must know again after a restart. Readers skip it.
    pub fn record(&mut self, timestamp: u32, json: &str) {
        self.event(EventKind::IGNORABLE, timestamp, EventHeader::FLAG_IGNORABLE, json.as_bytes());
    }

    pub fn xid(&mut self, timestamp: u32, number: u64) {
        self.event(EventKind::XID, timestamp, 0, &number.to_le_bytes());
    }

    /// `database` has at most 255 bytes.
    pub fn query(&mut self, timestamp: u32, database: &str, sql: &str) {
        let mut variables = vec![1];
        variables.extend(SQL_MODE.to_le_bytes());
        variables.push(4);
        for _ in 0..3 {
            variables.extend(UTF8MB4.to_le_bytes());
        }
        let mut body = vec![0; 8];
        body.push(database.len() as u8);
        body.extend([0; 2]);
        body.extend((variables.len() as u16).to_le_bytes());
        body.extend(variables);
        body.extend_from_slice(database.as_bytes());
        body.push(0);
        body.extend_from_slice(sql.as_bytes());
        self.event(EventKind::QUERY, timestamp, 0, &body);
    }
}

/// A length in the protocol's own form.
pub fn put_length(out: &mut Vec<u8>, length: usize) {
    match length {
        0..=250 => out.push(length as u8),
        251..=0xffff => {
            out.push(0xfc);
            out.extend((length as u16).to_le_bytes());
        }
        _ => {
            out.push(0xfd);
            out.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
        }
    }
}

/// Bits of which the first is the lowest one of the first byte.
pub fn put_bits(out: &mut Vec<u8>, bits: impl Iterator<Item = bool>) {
    let start = out.len();
    for (index, bit) in bits.enumerate() {
        if index % 8 == 0 {
            out.push(0);
        }
        out[start + index / 8] |= u8::from(bit) << (index % 8);
    }
}
