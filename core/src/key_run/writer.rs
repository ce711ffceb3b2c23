//! Writes a run from keys that come in any order.

use arrow_array::{Array, Int64Array, RecordBatch};

use super::fingerprint::Fingerprints;
use super::format::Layout;
use super::output::RunOutput;
use super::sort::Sorter;
use super::{Entry, Result, RunError, FILE_MAX};

/// Collects entries, and writes them as a run.
pub struct KeyRunWriter {
    path: String,
    seed: u64,
    sorter: Sorter,
    /// The greatest numbers so far.
    file_max: u32,
    row_max: u32,
}

impl KeyRunWriter {
    /// About `memory_max` bytes are held. More are on the disk beside `path`, until `finish`.
    pub fn new(path: &str, seed: u64, memory_max: u64) -> Self {
        let sorter = Sorter::new(path, memory_max);
        Self { path: path.to_owned(), seed, sorter, file_max: 0, row_max: 0 }
    }

    /// Row i of `keys` is row `first_row + i` of the data file.
    pub fn add(&mut self, keys: &RecordBatch, file: u32, first_row: u64) -> Result<()> {
        if first_row + keys.num_rows() as u64 > 1 << 32 {
            return Err(RunError::Refused("a data file has more than 2^32 rows".to_owned()));
        }
        self.add_each(keys, file, |row| first_row as u32 + row as u32)
    }

    /// Row i of `keys` is row `rows[i]` of the data file.
    pub fn add_rows(&mut self, keys: &RecordBatch, file: u32, rows: &Int64Array) -> Result<()> {
        if rows.len() != keys.num_rows() || rows.null_count() > 0 {
            return Err(RunError::Refused("numbers of rows that do not fit the keys".to_owned()));
        }
        if rows.values().iter().any(|row| u32::try_from(*row).is_err()) {
            return Err(RunError::Refused("a row's number is negative, or 2^32 or more".to_owned()));
        }
        self.add_each(keys, file, |row| rows.value(row) as u32)
    }

    fn add_each(&mut self, keys: &RecordBatch, file: u32, number: impl Fn(usize) -> u32) -> Result<()> {
        if file > FILE_MAX {
            return Err(RunError::Refused(format!(
                "{file} is more than the greatest file number, {FILE_MAX}"
            )));
        }
        self.file_max = self.file_max.max(file);
        let (sorter, row_max) = (&mut self.sorter, &mut self.row_max);
        let fingerprints = Fingerprints::new(self.seed);
        fingerprints.for_each(keys, |row, hash| {
            let row = number(row);
            *row_max = row.max(*row_max);
            sorter.push(Entry::new(hash, file, row))
        })
    }

    pub fn len(&self) -> u64 {
        self.sorter.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the run at `path`, and waits until the disk has it. Returns the number of its entries.
    pub fn finish(self) -> Result<u64> {
        let layout = Layout::of(self.sorter.len(), self.file_max, self.row_max);
        let mut output = RunOutput::create(&self.path, self.seed, layout)?;
        self.sorter.drain(|entry| output.push(entry))?;
        output.finish()
    }
}
