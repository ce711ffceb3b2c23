//! A log that is fetched in ranges, by somebody who may answer anything. `make fuzz TARGETS=ranged`
#![no_main]

mod log;

use std::io::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::Layout;
use penstock_core::error;
use penstock_core::mysql::scan::RangeScan;
use penstock_core::output::Options;
use penstock_core::schema::TableSchema;
use penstock_core::segment_file::{Fetch, RangedFile, SegmentFile};
use penstock_core::split::Split;

/// What the answers are.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    Right,
    Short,
    Long,
    Other,
    Failing,
}

struct Fetched(Vec<u8>, Answers);

impl Fetch for Fetched {
    fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let bytes = self.0.get(range.start as usize..range.end as usize).unwrap_or_default();
        match self.1 {
            Answers::Right => Ok(bytes.to_vec()),
            Answers::Short => Ok(bytes[..bytes.len() / 2].to_vec()),
            Answers::Long => Ok([bytes, b"more"].concat()),
            Answers::Other => Ok(bytes.iter().map(|byte| byte.rotate_left(3)).collect()),
            Answers::Failing => Err(Error::other("no")),
        }
    }
}

fn rows(file: SegmentFile, length: u64) -> error::Result<Vec<usize>> {
    let table = Arc::new(TableSchema::from_json(log::SCHEMA)?);
    let split = Split { file, ..log::split(length as usize, None) };
    let mut decoder = Changelog::new(RangeScan::new(table, &split, None)?, &Options::of(Layout::Changelog))?;
    let mut rows = Vec::new();
    while let Some(batch) = decoder.next_batch()? {
        rows.push(batch.num_rows());
    }
    Ok(rows)
}

fuzz_target!(|input: (u8, u32, u32, u64, u64, &[u8])| {
    let (answers, start, end, size, block_bytes, bytes) = input;
    let answers = [Answers::Right, Answers::Short, Answers::Long, Answers::Other, Answers::Failing]
        [answers as usize % 5];
    let file = log::file(bytes);
    let whole = file.len() as u64;
    // The size is right, or another one. Nobody says that a file is larger than memory.
    let size = if answers == Answers::Right { whole } else { size % (2 * whole + 1) };
    let part = u64::from(start)..u64::from(end);
    let fetched = Box::new(Fetched(file, answers));
    let ranged = RangedFile::new("it".into(), size, part, block_bytes, block_bytes, fetched);
    let _ = rows(SegmentFile::Ranged(Arc::new(ranged)), size);
});
