//! Builds a run of a key index, looks keys up in it, or merges runs, and says what it cost.
//!
//!     cargo run --release --example key_run build PATH ROWS [PASSES [MEMORY_MB]]
//!     cargo run --release --example key_run find PATH ROWS [PASSES [KEYS]]
//!     cargo run --release --example key_run merge PATH ROWS PASSES RUN...
//!
//! Keys are the integers below ROWS. `find` needs a run that `build` wrote, and searches for KEYS of them in
//! each pass. The last line is a JSON object with the times of a pass.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use hashbrown::HashMap;
use penstock_core::key_run::{merge, Input, KeyRun, KeyRunWriter};
use roaring::RoaringTreemap;

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
    let mut times = Vec::new();
    let mut timed = |pass: &mut dyn FnMut()| {
        let began = Instant::now();
        pass();
        times.push(began.elapsed().as_secs_f64());
    };
    let count = match arguments.first().map(String::as_str) {
        Some("build") => {
            (0..passes).for_each(|_| timed(&mut || build(&arguments[1], rows, number(4, 64) << 20)));
            rows
        }
        Some("find") => {
            let run = KeyRun::open(&arguments[1]).expect("a run");
            let keys = number(4, 1000);
            (0..passes).for_each(|pass| timed(&mut || find(&run, rows, keys, pass)));
            keys
        }
        Some("merge") => {
            (0..passes).for_each(|_| timed(&mut || merge_all(&arguments[1], &arguments[4..])));
            rows
        }
        _ => {
            eprintln!("arguments: build|find|merge PATH ROWS [PASSES [MEMORY_MB|KEYS|RUN...]]");
            std::process::exit(2);
        }
    };
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    println!("{{\"rows\": {count}, \"best_s\": {best:.6}, \"median_s\": {median:.6}}}");
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

/// In one of 100 files, every second row is deleted.
#[inline(never)]
fn merge_all(path: &str, runs: &[String]) {
    let files: HashMap<u32, u32> = (0..10_000).map(|file| (file, file + 1)).collect();
    let open = |path: &String| Input { run: KeyRun::open(path).expect("a run"), files: Some(files.clone()) };
    let deleted: RoaringTreemap = (0..FILE_ROWS).step_by(2).collect();
    let deleted = (0..10_000).step_by(100).map(|file| (file, deleted.clone())).collect();
    merge(&runs.iter().map(open).collect::<Vec<_>>(), path, &deleted).expect("merged");
}

#[inline(never)]
fn find(run: &KeyRun, rows: u64, keys: u64, pass: u64) {
    // Multiples of a large odd number, which are spread over all rows.
    let numbers = (0..keys).map(|at| (pass * keys + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows);
    let found = run.find(&batch(numbers)).expect("searched");
    assert_eq!(found.keys.len() as u64, keys);
}
