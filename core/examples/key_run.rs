//! Builds a run of a key index, or looks keys up in it, and says what it cost.
//!
//!     cargo run --release --example key_run build PATH ROWS [PASSES [MEMORY_MB]]
//!     cargo run --release --example key_run find PATH ROWS [PASSES [KEYS]]
//!
//! Keys are the integers below ROWS. `find` needs a run that `build` wrote, and searches for KEYS of them in
//! each pass. The last line is a JSON object.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use penstock_core::key_run::{KeyRun, KeyRunWriter};

const SEED: u64 = 7;
/// As many as are read from a Parquet file at a time.
const BATCH_ROWS: u64 = 100_000;
/// Rows of a data file.
const FILE_ROWS: u64 = 1_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: u64| {
        arguments.get(at).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (rows, passes) = (number(2, 0), number(3, 1));
    let began = Instant::now();
    let count = match arguments.first().map(String::as_str) {
        Some("build") => {
            (0..passes).for_each(|_| build(&arguments[1], rows, number(4, 64) << 20));
            rows
        }
        Some("find") => {
            let run = KeyRun::open(&arguments[1]).expect("a run");
            let keys = number(4, 1000);
            (0..passes).for_each(|pass| find(&run, rows, keys, pass));
            keys
        }
        _ => {
            eprintln!("arguments: build|find PATH ROWS [PASSES [MEMORY_MB|KEYS]]");
            std::process::exit(2);
        }
    };
    println!("{{\"rows\": {count}, \"wall_s\": {:.6}}}", began.elapsed().as_secs_f64());
}

fn batch(numbers: impl Iterator<Item = u64>) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.map(|number| number as i64)));
    RecordBatch::try_from_iter([("id", ids)]).expect("a batch")
}

#[inline(never)]
fn build(path: &str, rows: u64, memory_max: u64) {
    let mut writer = KeyRunWriter::new(path, SEED, memory_max);
    for first in (0..rows).step_by(BATCH_ROWS as usize) {
        let keys = batch(first..(first + BATCH_ROWS).min(rows));
        writer.add(&keys, (first / FILE_ROWS) as u32, first % FILE_ROWS).expect("added");
    }
    assert_eq!(writer.finish().expect("written"), rows);
}

#[inline(never)]
fn find(run: &KeyRun, rows: u64, keys: u64, pass: u64) {
    // Multiples of a large odd number, which are spread over all rows.
    let numbers = (0..keys).map(|at| (pass * keys + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows);
    let found = run.find(&batch(numbers)).expect("searched");
    assert_eq!(found.keys.len() as u64, keys);
}
