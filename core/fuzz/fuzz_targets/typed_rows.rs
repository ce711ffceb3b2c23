//! Records of the format `rows`, with checksums that fit or not, as decoders and the index read them.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::Layout;
use penstock_core::output::Options;
use penstock_core::place::Number;
use penstock_core::records::{append, RecordFile, HEAD, MAGIC};
use penstock_core::schema::TableSchema;
use penstock_core::segment_file::SegmentFile;
use penstock_core::split::Split;
use penstock_core::typed_rows::{Own, RowsScan, SeriesSet, Tracker, NAME};

const TABLE: &str = r#"{"database":"d","table":"t","key":["id"],"columns":[
    {"name":"id","type":"bigint","nullable":false},{"name":"v","type":"longtext"}]}"#;

fuzz_target!(|data: &[u8]| {
    let mut file = MAGIC.to_vec();
    append(HEAD, 0, br#"{"format":"rows","version":1}"#, &mut file);
    // Each record of the input: its kind, the length of its body, the body.
    let mut rest = data;
    while let [kind, length, tail @ ..] = rest {
        let length = usize::from(*length).min(tail.len());
        append(*kind, 0, &tail[..length], &mut file);
        rest = &tail[length..];
    }
    let end = file.len() as u64;
    let mut tracker = Tracker::<Own>::new(0, SeriesSet::default(), Number::default());
    if let Ok(mut records) = RecordFile::of_bytes(file.clone(), 0, NAME) {
        let _ = records.each((0, end), &mut |record| tracker.record(record));
        drop(tracker.log.entry(""));
    }
    let Ok(table) = TableSchema::from_json(TABLE) else { return };
    let split =
        Split { file: SegmentFile::from(""), base: 0, start: 0, end, preamble: Vec::new(), positions: None };
    let scan = RecordFile::of_bytes(file, 0, NAME)
        .and_then(|records| RowsScan::<Own>::over(records, Arc::new(table), &split, None));
    let Ok(scan) = scan else { return };
    let Ok(mut changes) = Changelog::new(scan, &Options::of(Layout::Changelog)) else { return };
    while let Ok(Some(_)) = changes.next_batch() {}
});
