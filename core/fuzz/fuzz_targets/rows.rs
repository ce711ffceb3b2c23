//! Any bytes as row events behind the table map of a real log. `cargo +nightly fuzz run rows`
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::changelog::Changelog;
use penstock_core::column::{Layout, ZeroDates};
use penstock_core::event::{Checksum, Event, EventKind, Events, FormatDescription};
use penstock_core::log_file::LogFile;
use penstock_core::output::Options;
use penstock_core::scan::{RangeScan, Split};
use penstock_core::schema::TableSchema;

const LOG: &[u8] = include_bytes!("../../tests/data/changes.binlog");
const SCHEMA: &str = include_str!("../../tests/data/changes.json");

/// The log up to and with its first table map, without checksums from there on being right.
fn head() -> Option<usize> {
    let format = FormatDescription::parse(&Event::parse(&LOG[4..], 4, Checksum::None).ok()?).ok()?;
    let mut events = Events::new(&LOG[4..], 4, format.checksum).flatten();
    let map = events.find(|event| event.header.kind == EventKind::TABLE_MAP)?;
    Some(map.offset as usize + map.raw.len())
}

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    let Some(head) = head() else { return };
    let mut log = LOG[..head].to_vec();
    // The table id that the map gives.
    let table_id = LOG[head..].get(19..25).unwrap_or(&[0; 6]);
    log.extend([1, 0, 0, 0, [30, 31, 32, 23, 24, 25][usize::from(kind % 6)], 1, 0, 0, 0]);
    log.extend((19 + 6 + bytes.len() as u32 + 4).to_le_bytes());
    log.extend([0; 6]);
    log.extend(table_id);
    log.extend(bytes);
    log.extend([0; 4]);
    let Ok(table) = TableSchema::from_json(SCHEMA) else { return };
    let split = Split { path: String::new(), base: 0, start: 0, end: log.len() as u64, preamble: Vec::new() };
    let options = Options {
        layout: Layout::Changelog,
        columns: None,
        before_images: true,
        bucket: None,
        zero_dates: ZeroDates::Text,
        batch_rows: 1000,
        batch_bytes: 1 << 20,
    };
    let scan =
        LogFile::of_bytes(log, 0).and_then(|file| RangeScan::over(file, Arc::new(table), &split, None));
    if let Ok(mut decoder) = scan.and_then(|scan| Changelog::new(scan, &options)) {
        while let Ok(Some(_)) = decoder.next_batch() {}
    }
});
