//! Any bytes as the body of a table map. `make fuzz TARGETS=table_map`
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::mysql::checksum::Checksum;
use penstock_core::mysql::event::{Event, FormatDescription};
use penstock_core::table_map::TableMap;

const LOG: &[u8] = include_bytes!("../../tests/data/changes.binlog");

fuzz_target!(|bytes: &[u8]| {
    let format =
        Event::parse(&LOG[4..], 4, Checksum::None).and_then(|event| FormatDescription::parse(&event));
    let mut raw = vec![1, 0, 0, 0, 19, 1, 0, 0, 0];
    raw.extend((19 + bytes.len() as u32).to_le_bytes());
    raw.extend([0; 6]);
    raw.extend(bytes);
    if let (Ok(event), Ok(format)) = (Event::parse(&raw, 0, Checksum::None), format) {
        let _ = TableMap::parse(&event, &format);
    }
});
