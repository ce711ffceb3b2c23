//! Merges runs into one, and leaves out entries that are no longer needed.

use std::fs;

use hashbrown::HashMap;
use roaring::RoaringTreemap;

use super::format::{bits_for, Layout};
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
    #[inline]
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
        if input.run.path() == to {
            return Err(RunError::Refused(format!("{to} cannot be merged into itself")));
        }
        if input.run.seed() != seed {
            return Err(RunError::damaged(input.run.path(), "it belongs to another index"));
        }
        if input.files.iter().flatten().any(|(_, new)| *new > FILE_MAX) {
            return Err(RunError::Refused(format!("a file number is more than {FILE_MAX}")));
        }
    }
    let expected = inputs.iter().map(|input| input.run.len()).sum();
    let kept = write(inputs, to, seed, expected, deleted)?;
    if bits_for(kept) + 1 < bits_for(expected) {
        return write_again(to, seed, kept);
    }
    Ok(kept)
}

fn write(
    inputs: &[Input],
    to: &str,
    seed: u64,
    expected: u64,
    deleted: &HashMap<u32, RoaringTreemap>,
) -> Result<u64> {
    let (file_max, row_max) = maxima(inputs);
    let mut output = RunOutput::create(to, seed, Layout::of(expected, file_max, row_max))?;
    let entries = inputs.iter().map(|input| Entries::of(&input.run)).collect::<Result<_>>()?;
    sort::merge(entries, |entry, number| {
        let entry = match &inputs[number].files {
            None => entry,
            Some(files) => match files.get(&entry.file()) {
                None => return Ok(()),
                Some(file) => Entry { file: *file, ..entry },
            },
        };
        match deleted.get(&entry.file()) {
            Some(rows) if rows.contains(entry.row().into()) => Ok(()),
            _ => output.push(entry),
        }
    })?;
    output.finish()
}

/// The greatest file and the greatest row that the merged run may have.
fn maxima(inputs: &[Input]) -> (u32, u32) {
    inputs.iter().fold((0, 0), |(file_max, row_max), input| {
        let (file, row) = input.run.maxima();
        let file = match &input.files {
            None => file,
            Some(files) => files.values().copied().max().unwrap_or(0),
        };
        (file_max.max(file), row_max.max(row))
    })
}

/// Writes a run that has far fewer entries than expected once more, with fewer buckets.
fn write_again(path: &str, seed: u64, entries: u64) -> Result<u64> {
    // An open file stays readable without a name.
    let file = fs::File::open(path).map_err(RunError::io(path))?;
    let run = KeyRun::of(path, Box::new(file))?;
    fs::remove_file(path).map_err(RunError::io(path))?;
    write(&[Input { run, files: None }], path, seed, entries, &HashMap::new())
}
