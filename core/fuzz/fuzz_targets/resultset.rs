//! Any bytes as the answer to a SELECT, in pieces of any size. `make fuzz TARGETS=resultset`
#![no_main]

mod log;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::column::{TypeOptions, ZeroDates};
use penstock_core::mysql::resultset::ResultSetDecoder;
use penstock_core::schema::TableSchema;

fn run(table: &Arc<TableSchema>, bytes: &[u8], size: usize) -> (u64, bool) {
    let types = TypeOptions { zero_dates: ZeroDates::Text, ..TypeOptions::default() };
    let Ok(mut decoder) = ResultSetDecoder::new(table.clone(), types, 3, 1 << 16) else {
        return (0, false);
    };
    for part in bytes.chunks(size.max(1)) {
        if decoder.feed(part).is_err() {
            return (decoder.rows(), false);
        }
    }
    let finished = decoder.finish().is_ok();
    assert!(decoder.done() || !finished);
    (decoder.rows(), finished)
}

/// `packets` numbered and with their lengths.
fn wire<'a>(packets: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, packet) in packets.enumerate() {
        bytes.extend(&(packet.len() as u32).to_le_bytes()[..3]);
        bytes.push(number as u8 + 1);
        bytes.extend(packet);
    }
    bytes
}

/// A definition that fits a column of `FITTING`.
fn definition(kind: &str) -> Vec<u8> {
    let (code, flags, decimals, collation): (u8, u16, u8, u16) = match kind {
        "int" => (3, 0, 0, 63),
        "bigint" => (8, 32, 0, 63),
        "date" => (10, 0, 0, 63),
        "json" => (245, 0, 0, 63),
        _ => (253, 0, 0, 255),
    };
    let mut bytes = vec![0, 0, 0, 0, 0, 0, 12];
    bytes.extend(collation.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.push(code);
    bytes.extend(flags.to_le_bytes());
    bytes.extend([decimals, 0, 0]);
    bytes
}

const FITTING: &str = r#"{"database":"d","table":"t","version":1,"key":["a"],"columns":[
    {"name":"a","type":"int","nullable":false},{"name":"b","type":"bigint","unsigned":true},
    {"name":"c","type":"date"},{"name":"d","type":"json"},
    {"name":"e","type":"text","charset":"utf8mb4","collation":"utf8mb4_0900_ai_ci"}]}"#;

fuzz_target!(|input: (bool, u8, Vec<&[u8]>)| {
    let (fitting, size, packets) = input;
    let Ok(table) = TableSchema::from_json(if fitting { FITTING } else { log::SCHEMA }) else {
        unreachable!("the schema is ours")
    };
    let definitions: Vec<_> = table.columns.iter().map(|column| definition(&column.kind)).collect();
    let (count, table) = ([table.columns.len() as u8], Arc::new(table));
    let end: &[u8] = &[0xfe, 0, 0, 2, 0];
    let bytes = if fitting {
        let defined = std::iter::once(&count[..]).chain(definitions.iter().map(Vec::as_slice));
        wire(defined.chain([end]).chain(packets.iter().copied()).chain([end]))
    } else {
        wire(packets.iter().copied())
    };
    let once = run(&table, &bytes, usize::MAX);
    assert!(once == run(&table, &bytes, usize::from(size)), "rows depend on how the bytes come");
});
