//! Logs made of any bytes whose events are whole: so the fuzzer gets behind lengths and checksums.
#![allow(dead_code)] // each target uses a part

use penstock_core::mysql::checksum::Checksum;
use penstock_core::mysql::event::{Event, EventKind, Events, FormatDescription};
use penstock_core::split::Split;

/// A log of a real server, with checksums.
pub const REAL: &[u8] = include_bytes!("../../tests/data/changes.binlog");
pub const SCHEMA: &str = include_str!("../../tests/data/changes.json");

const HEADER: usize = 19;
const FLAGS: usize = 17;

/// Magic and the real FORMAT_DESCRIPTION, without checksums behind it.
pub fn head() -> Vec<u8> {
    let end = 4 + Event::parse(&REAL[4..], 4, Checksum::None).map_or(0, |event| event.raw.len());
    let mut head = REAL[..end].to_vec();
    head[4 + FLAGS] = 0;
    head[end - 5] = 0;
    head
}

pub fn event(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut event = vec![1, 0, 0, 0, kind, 1, 0, 0, 0];
    event.extend(((HEADER + body.len()) as u32).to_le_bytes());
    event.extend([0; 6]);
    event.extend(body);
    event
}

/// `kind, length (2 bytes), body` again and again, as whole events. Rows have the table id of the real log's
/// map if theirs begins with zero.
pub fn events(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    while let [kind, low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (body, behind) = rest.split_at(length);
        events.push(event(*kind, body));
        bytes = behind;
    }
    events
}

/// A whole file: as it stands if the first byte is odd, else `head` and events.
pub fn file(bytes: &[u8]) -> Vec<u8> {
    match bytes {
        [first, rest @ ..] if first % 2 == 1 => rest.to_vec(),
        [_, rest @ ..] => events(rest).into_iter().fold(head(), |mut file, event| {
            file.extend(event);
            file
        }),
        [] => Vec::new(),
    }
}

/// All of a file of so many bytes.
pub fn split(length: usize, positions: Option<Vec<u64>>) -> Split {
    Split { file: "".into(), base: 0, start: 0, end: length as u64, preamble: Vec::new(), positions }
}

/// The packets of a replication connection that carry these events.
pub fn packets(events: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, event) in events.iter().enumerate() {
        bytes.extend(&((event.len() + 1) as u32).to_le_bytes()[..3]);
        bytes.extend([number as u8, 0]);
        bytes.extend(event);
    }
    bytes
}

/// The real log up to and with its first table map, and the id the map gives.
pub fn up_to_the_first_map() -> Option<(Vec<u8>, [u8; 6])> {
    let head = head();
    let format = FormatDescription::parse(&Event::parse(&REAL[4..], 4, Checksum::None).ok()?).ok()?;
    let mut log = head;
    for event in Events::new(&REAL[4..], 4, format.checksum).flatten().skip(1) {
        log.extend(self::event(event.header.kind.0, event.body));
        if event.header.kind == EventKind::TABLE_MAP {
            return Some((log, event.body.first_chunk().copied()?));
        }
    }
    None
}
