//! Encodes a log some times over and says what it cost.
//!
//!     cargo run --release --example encode SEGMENT FORMAT [PASSES]
//!
//! The log must have the names of columns. The last line is a JSON object.

use std::time::Instant;

use penstock_core::encode::encoder::{Encoder, Step};
use penstock_core::encode::{formats, source_info};
use penstock_core::mysql::log_order::LogOrder;
use penstock_core::transaction::{KnownPlace, Part, Selection};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, format, rest @ ..] = arguments.as_slice() else {
        eprintln!("arguments: SEGMENT FORMAT [PASSES]");
        std::process::exit(2);
    };
    let passes: u64 = rest.first().map_or(1, |text| text.parse().expect("a number"));
    let began = Instant::now();
    let (mut messages, mut bytes) = (0, 0);
    for _ in 0..passes {
        let (more, size) = encode(path, format);
        messages += more;
        bytes += size;
    }
    let wall_s = began.elapsed().as_secs_f64();
    println!("{{\"rows\": {messages}, \"bytes\": {bytes}, \"wall_s\": {wall_s:.3}}}");
}

/// One pass: how many messages, and how many bytes they have.
#[inline(never)]
fn encode(path: &str, format: &str) -> (usize, usize) {
    let part =
        Part { file: path.into(), base: 0, start: 0, end: None, known: vec![KnownPlace::of_file(path)] };
    let options = match format {
        "debezium" | "avro" | "protobuf" => "{\"tombstones_on_delete\": false}",
        _ => "{}",
    };
    let format = formats::by_name(format, options, &source_info::MYSQL).expect("a format");
    let order = Box::new(LogOrder::new(vec![part], Selection::default()));
    let mut encoder = Encoder::new(order, format, Vec::new(), Selection::default());
    let (mut messages, mut bytes) = (0, 0);
    while let Some(step) = encoder.next_step(1 << 20).expect("messages") {
        if let Step::Messages(batch) = step {
            messages += batch.messages.len();
            bytes += batch.messages.bytes.len();
        }
    }
    (messages, bytes)
}
