//! Damaged logs: encoders never panic, and what they write before the damage is JSON, or begins as binary
//! messages do.

use std::ops::Range;
use std::sync::Arc;

use penstock_core::encode::encoder::{Encoder, Step};
use penstock_core::encode::{formats, source_info};
use penstock_core::mysql::log_order::LogOrder;
use penstock_core::segment_file::{Fetch, RangedFile, SegmentFile};
use penstock_core::transaction::{KnownPlace, Part, Selection};
use proptest::prelude::*;

const FORMATS: [(&str, &str); 8] = [
    ("json", "{}"),
    ("maxwell", "{\"output_row_query\": true, \"output_primary_keys\": true}"),
    ("debezium", "{\"schemas\": true, \"provide_transaction_metadata\": true}"),
    ("canal", "{\"faithful\": true}"),
    ("cloudevents", "{}"),
    ("avro", "{\"provide_transaction_metadata\": true, \"bigint_unsigned_handling_mode\": \"precise\"}"),
    ("canal-entry", "{\"single_rows\": true}"),
    ("protobuf", "{\"bigint_unsigned_handling_mode\": \"precise\"}"),
];
const LOGS: [&[u8]; 2] = [include_bytes!("data/changes.binlog"), include_bytes!("../bench/small.binlog")];
const HEADER: usize = 19;
const CHECKSUM: usize = 4;

struct Bytes(Vec<u8>);

impl Fetch for Bytes {
    fn fetch(&self, range: Range<u64>) -> std::io::Result<Vec<u8>> {
        Ok(self.0[range.start as usize..range.end as usize].to_vec())
    }
}

/// Changes bytes, and makes the checksums right again.
fn damaged(log: &[u8], damages: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = log.to_vec();
    let mut starts = Vec::new();
    let mut position = 4;
    while position + HEADER < bytes.len() {
        let size = u32::from_le_bytes(bytes[position + 9..position + 13].try_into().unwrap()) as usize;
        starts.push((position, size));
        position += size;
    }
    for (place, byte) in damages {
        let (start, size) = starts[1 + place % (starts.len() - 1)];
        let body = size - HEADER - CHECKSUM;
        if body > 0 {
            bytes[start + HEADER + place / 7 % body] ^= byte;
        }
        let end = start + size - CHECKSUM;
        let checksum = crc32fast::hash(&bytes[start..end]).to_le_bytes();
        bytes[end..end + CHECKSUM].copy_from_slice(&checksum);
    }
    bytes
}

fn messages(bytes: &[u8], (name, options): (&str, &str)) -> usize {
    let size = bytes.len() as u64;
    let fetch = Box::new(Bytes(bytes.to_vec()));
    let file = RangedFile::new("log.000001".to_owned(), size, 0..size, 1 << 16, 1 << 20, fetch);
    let file = SegmentFile::Ranged(Arc::new(file));
    let part = Part { file, base: 0, start: 0, end: None, known: vec![KnownPlace::of_file("log.000001")] };
    let format = formats::by_name(name, options, &source_info::MYSQL).unwrap();
    let order = Box::new(LogOrder::new(vec![part], Selection::default()));
    let mut encoder = Encoder::new(order, format, Vec::new(), Selection::default());
    let mut count = 0;
    while let Ok(Some(step)) = encoder.next_step(1 << 16) {
        let Step::Messages(batch) = step else { continue };
        for index in 0..batch.messages.len() {
            let message = batch.messages.get(index).unwrap();
            for part in [message.key, message.value].into_iter().flatten() {
                match name {
                    "avro" | "protobuf" => {
                        assert_eq!(part.first(), Some(&0), "{name}");
                        continue;
                    }
                    // The tag of the header.
                    "canal-entry" => {
                        assert_eq!(part.first(), Some(&0x0a), "{name}");
                        continue;
                    }
                    _ => {}
                }
                let valid = serde_json::from_slice::<serde::de::IgnoredAny>(part);
                assert!(valid.is_ok(), "{name}: {}", String::from_utf8_lossy(part));
            }
        }
        count += batch.messages.len();
    }
    count
}

#[test]
fn whole_logs_have_messages_in_every_format() {
    for format in FORMATS {
        assert!(LOGS.iter().all(|log| messages(log, format) > 5));
    }
}

/// Packs the events of each transaction, but for the one that announces it, into one event, as servers do
/// with `binlog_transaction_compression`.
fn packed(log: &[u8]) -> Vec<u8> {
    const PAYLOAD: u8 = 40;
    const GTID: u8 = 33;
    const XID: u8 = 16;
    let mut out = log[..4].to_vec();
    let (mut position, mut inner) = (4, None::<Vec<u8>>);
    while position + HEADER < log.len() {
        let size = u32::from_le_bytes(log[position + 9..position + 13].try_into().unwrap()) as usize;
        let event = &log[position..position + size];
        position += size;
        let Some(events) = &mut inner else {
            out.extend_from_slice(event);
            inner = (event[4] == GTID).then(Vec::new);
            continue;
        };
        let start = events.len();
        events.extend_from_slice(&event[..size - CHECKSUM]);
        events[start + 9..start + 13].copy_from_slice(&((size - CHECKSUM) as u32).to_le_bytes());
        if event[4] != XID {
            continue;
        }
        // Compression type 255: none; then the end of the fields.
        let mut payload = event[..HEADER].to_vec();
        payload[4] = PAYLOAD;
        payload.extend_from_slice(&[2, 3, 0xfc, 0xff, 0, 0]);
        payload.extend_from_slice(events);
        let length = (payload.len() + CHECKSUM) as u32;
        payload[9..13].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&payload).to_le_bytes();
        payload.extend_from_slice(&checksum);
        out.extend_from_slice(&payload);
        inner = None;
    }
    out
}

#[test]
fn packed_transactions_have_the_same_messages() {
    let log = LOGS[1];
    assert!(packed(log).len() != log.len());
    for format in [("maxwell", "{}"), ("debezium", "{\"provide_transaction_metadata\": true}")] {
        assert_eq!(messages(&packed(log), format), messages(log, format));
    }
}

proptest! {
    #[test]
    fn damaged_logs_give_json_or_errors(
        log in 0..LOGS.len(),
        damages in proptest::collection::vec((any::<usize>(), 1..=u8::MAX), 1..4),
    ) {
        let bytes = damaged(LOGS[log], &damages);
        for format in FORMATS {
            messages(&bytes, format);
        }
    }
}
