//! Any bytes as row events behind the table map of a real log. `make fuzz TARGETS=rows`
#![no_main]

mod log;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::{Layout, TypeOptions, ZeroDates};
use penstock_core::mysql::log_file::LogFile;
use penstock_core::mysql::scan::RangeScan;
use penstock_core::output::Options;
use penstock_core::schema::TableSchema;

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    let Some((mut log, table_id)) = log::up_to_the_first_map() else { return };
    let body: Vec<u8> = table_id.iter().chain(bytes).copied().collect();
    log.extend(log::event([30, 31, 32, 23, 24, 25, 39][usize::from(kind % 7)], &body));
    let Ok(table) = TableSchema::from_json(log::SCHEMA) else { return };
    let split = log::split(log.len(), None);
    let options = Options {
        partial_images: true,
        types: TypeOptions { zero_dates: ZeroDates::Text, ..TypeOptions::default() },
        batch_rows: 1000,
        batch_bytes: 1 << 20,
        ..Options::of(Layout::Changelog)
    };
    let scan =
        LogFile::of_bytes(log, 0).and_then(|file| RangeScan::over(file, Arc::new(table), &split, None));
    if let Ok(mut decoder) = scan.and_then(|scan| Changelog::new(scan, &options)) {
        while let Ok(Some(_)) = decoder.next_batch() {}
    }
});
