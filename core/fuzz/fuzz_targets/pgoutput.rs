//! Messages of PostgreSQL's output plugin, as its receiver and decoders read them.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::Layout;
use penstock_core::output::Options;
use penstock_core::pgoutput::translator::Translator;
use penstock_core::pgoutput::{Messages, NAME};
use penstock_core::records::{append, RecordFile, HEAD, MAGIC};
use penstock_core::schema::TableSchema;
use penstock_core::segment_file::SegmentFile;
use penstock_core::split::Split;
use penstock_core::typed_rows::write::Records;
use penstock_core::typed_rows::RowsScan;

const COLUMNS: &str = r#"[{"name":"id","type":"int","nullable":false,"pg_type":23,"identity":true},
    {"name":"t","type":"longtext","pg_type":25},
    {"name":"n","type":"decimal","precision":10,"scale":2,"pg_type":1700},
    {"name":"u","type":"longtext","pg_type":1700},{"name":"a","type":"json","pg_type":1007},
    {"name":"z","type":"timestamp","fsp":6,"pg_type":1184},{"name":"i","type":"longtext","pg_type":1186},
    {"name":"p","type":"longtext","pg_type":869},{"name":"b","type":"longblob","pg_type":17}]"#;

fuzz_target!(|data: &[u8]| {
    // Each message of the input: the length of its bytes, then these.
    let (mut messages, mut rest) = (Vec::new(), data);
    while let [length, tail @ ..] = rest {
        let length = usize::from(*length).min(tail.len());
        messages.push(&tail[..length]);
        rest = &tail[length..];
    }
    let mut translator = Translator::new(0, 0);
    let sent = || messages.iter().map(|message| (0, *message));
    for (_, _, _, message) in translator.unknown(sent()).unwrap_or_default() {
        let _ = translator.describe(&message, format!(r#"{{"key":["id"],"columns":{COLUMNS}}}"#), Vec::new());
    }
    let _ = translator.translate(sent());
    let mut file = MAGIC.to_vec();
    append(HEAD, 0, br#"{"format":"pgoutput","version":1}"#, &mut file);
    let mut records = Records::default();
    records.begin(0, 0, "7");
    records.definition(0, 1, ("d", "t"), &format!(r#"{{"key":["id"],"columns":{COLUMNS}}}"#));
    for message in messages {
        records.message(0, 1, message);
    }
    records.commit(0);
    file.extend_from_slice(&records.bytes);
    let end = file.len() as u64;
    let table = format!(r#"{{"database":"d","table":"t","key":["id"],"columns":{COLUMNS}}}"#);
    let table = TableSchema::from_json(&table).expect("it is one");
    let split =
        Split { file: SegmentFile::from(""), base: 0, start: 0, end, preamble: Vec::new(), positions: None };
    let scan = RecordFile::of_bytes(file, 0, NAME)
        .and_then(|records| RowsScan::<Messages>::over(records, Arc::new(table), &split, None))
        .expect("a file");
    let mut changes = Changelog::new(scan, &Options::of(Layout::Changelog)).expect("a decoder");
    while let Ok(Some(_)) = changes.next_batch() {}
});
