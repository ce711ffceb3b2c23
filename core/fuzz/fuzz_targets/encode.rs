//! Any bytes as a binlog file, encoded in each format. `make fuzz TARGETS=encode`
#![no_main]

mod log;

use libfuzzer_sys::fuzz_target;
use penstock_core::encode::encoder::{Encoder, Step};
use penstock_core::encode::{formats, source_info};
use penstock_core::mysql::log_order::LogOrder;
use penstock_core::segment_file::{Fetch, RangedFile, SegmentFile};
use penstock_core::transaction::{KnownPlace, Part, Selection};

struct Bytes(Vec<u8>);

impl Fetch for Bytes {
    fn fetch(&self, range: std::ops::Range<u64>) -> std::io::Result<Vec<u8>> {
        Ok(self.0[range.start as usize..range.end as usize].to_vec())
    }
}

const FORMATS: [(&str, &str); 5] = [
    ("json", "{}"),
    ("maxwell", "{\"output_row_query\": true, \"output_primary_keys\": true}"),
    ("debezium", "{\"schemas\": true, \"provide_transaction_metadata\": true, \"include_query\": true}"),
    ("canal", "{\"faithful\": true}"),
    ("cloudevents", "{}"),
];

fuzz_target!(|bytes: &[u8]| {
    let bytes = log::file(bytes);
    for (name, options) in FORMATS {
        let (size, fetch) = (bytes.len() as u64, Box::new(Bytes(bytes.clone())));
        let file = RangedFile::new("fuzz".to_owned(), size, 0..size, 1 << 16, 1 << 20, fetch);
        let file = SegmentFile::Ranged(std::sync::Arc::new(file));
        let part =
            Part { file, base: 0, start: 0, end: None, known: vec![KnownPlace::of_file("fuzz.000001")] };
        let format = formats::by_name(name, options, &source_info::MYSQL).expect("a format");
        let order = Box::new(LogOrder::new(vec![part], Selection::default()));
        let mut encoder = Encoder::new(order, format, Vec::new(), Selection::default());
        while let Ok(Some(step)) = encoder.next_step(1 << 16) {
            let Step::Messages(batch) = step else { continue };
            for index in 0..batch.messages.len() {
                let message = batch.messages.get(index).expect("a message");
                for part in [message.key, message.value].into_iter().flatten() {
                    let valid = serde_json::from_slice::<serde::de::IgnoredAny>(part).is_ok();
                    assert!(valid, "{name}: no JSON: {}", String::from_utf8_lossy(part));
                }
            }
        }
    }
});
