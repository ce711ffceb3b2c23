//! Messages of PostgreSQL's output plugin, as its receiver and decoders read them, and values of each type.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::{ColumnBuilder, Layout, TypeOptions};
use penstock_core::output::Options;
use penstock_core::pgoutput::arrivals::Arrivals;
use penstock_core::pgoutput::streamed::Streams;
use penstock_core::pgoutput::translator::Translator;
use penstock_core::pgoutput::types::{column, PgType};
use penstock_core::pgoutput::value::Target;
use penstock_core::pgoutput::{Messages, NAME};
use penstock_core::records::{append, RecordFile, HEAD, MAGIC};
use penstock_core::schema::{ColumnSchema, TableSchema};
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
        let definition = format!(r#"{{"key":["id"],"columns":{COLUMNS}}}"#);
        let _ = translator.describe(&message, definition, Vec::new(), None);
    }
    let _ = translator.translate(sent());
    stream(&messages);
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
    values(data);
});

/// Takes the messages as those of transactions that are sent while they run, and reads them back.
fn stream(messages: &[&[u8]]) {
    let folder = std::env::temp_dir().join(format!("penstock-fuzz-{}", std::process::id()));
    let (mut streams, mut arrivals) = (Streams::new(folder), Arrivals::default());
    for message in messages {
        let length = (29 + message.len()) as u32;
        let frame = [b"d", &length.to_be_bytes()[..], b"w", &[0; 24], message].concat();
        arrivals.feed(&frame).expect("it is a frame");
    }
    let (batch, mut at) = (arrivals.take(), 0);
    while let Ok(Some(_)) = streams.next(&batch, &mut at) {}
    streams.clear().expect("a folder");
}

/// Types by their numbers, and types that are made of others.
const TYPES: &str = r#"[16,17,20,21,23,26,5069,700,701,1700,790,25,114,3802,1560,1082,1114,1184,1083,1266,
    1186,2950,869,829,3220,3614,3615,4072,600,601,602,603,604,628,718,1007,1231,1182,1115,1185,1009,1020,
    1017,3643,
    ["range",23],["range",1700],["range",1184],["multirange",1082],["record",23,25,["array",1700]],["hstore"],
    ["array",["record",25,["range",701]]],["versioned"],["vector"]]"#;

/// Reads the bytes as a value of each type, in both forms, into the column that it has and into a text.
fn values(data: &[u8]) {
    let types: Vec<serde_json::Value> = serde_json::from_str(TYPES).expect("JSON");
    for said in types {
        let of_type = column("v", &said, -1, true, "");
        let text = serde_json::json!({"name": "v", "type": "longtext"});
        for column in [of_type, text] {
            let column = serde_json::from_value::<ColumnSchema>(column).expect("a column");
            let kind = column.column_type().expect("a type");
            let to = Target::new(PgType::of_json(&said), kind.clone());
            let mut out = Vec::new();
            let _ = to.binary(data, &mut to.form(&mut out));
            out.clear();
            let _ = to.text(data, &mut to.form(&mut out));
            let _ = to.binary(data, &mut ColumnBuilder::new(kind.clone(), TypeOptions::default()));
            let _ = to.text(data, &mut ColumnBuilder::new(kind, TypeOptions::default()));
        }
    }
}
