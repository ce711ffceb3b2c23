//! Merges runs into one, and leaves out entries that are no longer needed.

use hashbrown::HashMap;
use roaring::RoaringTreemap;

use super::output::RunOutput;
use super::run::{Entries, KeyRun};
use super::sort::{self, Sorted};
use super::{Entry, Result, RunError, FILE_MAX};

/// A run to merge. `files`: the new number of each of its data files. Entries of other files are left out.
/// None: all are kept with their numbers.
pub struct Input {
    pub run: KeyRun,
    pub files: Option<HashMap<u32, u32>>,
}

impl Sorted for Entries<'_> {
    fn next(&mut self) -> Result<Option<Entry>> {
        Entries::next(self)
    }
}

/// Writes the entries of all runs into a new one at `to`, and waits until the disk has it. `deleted`: the
/// rows to leave out, by the new number of their data file. Returns the number of entries.
///
/// There is at least one run, and all have one seed.
pub fn merge(inputs: &[Input], to: &str, deleted: &HashMap<u32, RoaringTreemap>) -> Result<u64> {
    let Some(seed) = inputs.first().map(|input| input.run.seed()) else {
        return Err(RunError::Refused("there are no runs to merge".to_owned()));
    };
    for input in inputs {
        if input.run.seed() != seed {
            return Err(RunError::damaged(input.run.path(), "it belongs to another index"));
        }
        if input.files.iter().flatten().any(|(_, new)| *new > FILE_MAX) {
            return Err(RunError::Refused(format!("a file number is more than {FILE_MAX}")));
        }
    }
    let expected = inputs.iter().map(|input| input.run.len()).sum();
    let mut output = RunOutput::create(to, seed, expected)?;
    let entries = inputs.iter().map(|input| Entries::of(&input.run)).collect();
    sort::merge(entries, |entry, number| {
        let entry = match &inputs[number].files {
            None => entry,
            Some(files) => match files.get(&entry.file()) {
                None => return Ok(()),
                Some(file) => entry.with_file(*file),
            },
        };
        match deleted.get(&entry.file()) {
            Some(rows) if rows.contains(entry.row().into()) => Ok(()),
            _ => output.push(entry),
        }
    })?;
    output.finish()
}
