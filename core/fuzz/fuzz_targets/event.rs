//! Any bytes as events, format descriptions and GTID events. `make fuzz TARGETS=event`
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::mysql::checksum::Checksum;
use penstock_core::mysql::event::{EventKind, Events, FormatDescription};
use penstock_core::mysql::gtid_event::GtidEvent;

fuzz_target!(|bytes: &[u8]| {
    for checksum in [Checksum::None, Checksum::Crc32] {
        for event in Events::new(bytes, 4, checksum).flatten() {
            match event.header.kind {
                EventKind::FORMAT_DESCRIPTION => drop(FormatDescription::parse(&event)),
                EventKind::GTID => drop(GtidEvent::parse_plain(event.body, event.offset, false)),
                EventKind::GTID_TAGGED => drop(GtidEvent::parse_tagged(event.body, event.offset)),
                _ => {}
            }
            let _ = event.header.kind.name();
        }
    }
});
