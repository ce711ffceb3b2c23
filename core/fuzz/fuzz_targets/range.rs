//! Any bytes as a binlog file, all layouts. `make fuzz TARGETS=range`
#![no_main]

mod log;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::changelog::Changelog;
use penstock_core::column::Layout;
use penstock_core::error::Result;
use penstock_core::latest::Latest;
use penstock_core::log_file::LogFile;
use penstock_core::output::Options;
use penstock_core::scan::{RangeScan, Split};
use penstock_core::schema::TableSchema;

fn decode(bytes: &[u8], layout: Layout) -> Result<()> {
    let table = Arc::new(TableSchema::from_json(log::SCHEMA)?);
    let split =
        Split { path: String::new(), base: 0, start: 0, end: bytes.len() as u64, preamble: Vec::new() };
    let options = Options {
        partial_images: layout == Layout::Latest,
        batch_rows: 1000,
        batch_bytes: 1 << 20,
        ..Options::of(layout)
    };
    let scan = RangeScan::over(LogFile::of_bytes(bytes.to_vec(), 0)?, table, &split, None)?;
    if layout == Layout::Latest {
        let mut decoder = Latest::new(scan, &options, Default::default())?;
        while decoder.next_batch()?.is_some() {}
    } else {
        let mut decoder = Changelog::new(scan, &options)?;
        while decoder.next_batch()?.is_some() {}
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let file = log::file(bytes);
    let _ = decode(&file, Layout::Changelog);
    let _ = decode(&file, Layout::Latest);
});
