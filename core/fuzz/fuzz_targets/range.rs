//! Any bytes as a binlog file, all layouts, also with an outline. `make fuzz TARGETS=range`
#![no_main]

mod log;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::Layout;
use penstock_core::error::Result;
use penstock_core::latest::Latest;
use penstock_core::mysql::log_file::LogFile;
use penstock_core::mysql::outline::outline_over;
use penstock_core::mysql::scan::RangeScan;
use penstock_core::output::Options;
use penstock_core::schema::TableSchema;

fn decode(bytes: &[u8], layout: Layout, positions: Option<Vec<u64>>) -> Result<()> {
    let table = Arc::new(TableSchema::from_json(log::SCHEMA)?);
    let split = log::split(bytes.len(), positions);
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

/// What the outline of the file says of the table, if it can be made.
fn positions(bytes: &[u8]) -> Option<Vec<u64>> {
    let table = TableSchema::from_json(log::SCHEMA).ok()?;
    let file = LogFile::of_bytes(bytes.to_vec(), 0).ok()?;
    let names = [(table.database, table.table)];
    let outline = outline_over(file, &names, &log::split(bytes.len(), None)).ok()??;
    Some(outline.positions(0, 0, bytes.len() as u64))
}

fuzz_target!(|bytes: &[u8]| {
    let file = log::file(bytes);
    let _ = decode(&file, Layout::Changelog, None);
    let _ = decode(&file, Layout::Latest, None);
    if let Some(positions) = positions(&file) {
        let _ = decode(&file, Layout::Changelog, Some(positions.clone()));
        let _ = decode(&file, Layout::Latest, Some(positions));
    }
});
