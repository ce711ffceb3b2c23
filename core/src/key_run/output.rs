//! Writes a run from entries that come sorted.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use super::format::{begin_checksum, Header, Layout, HEADER_SIZE};
use super::{Entry, Result, RunError};

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// A run that is being written. Until `finish`, its file is not a run.
pub struct RunOutput<'a> {
    path: &'a str,
    file: File,
    seed: u64,
    layout: Layout,
    entries: u64,
    /// Entries up to the end of each finished bucket.
    ends: Vec<u64>,
    /// The checksum of the open bucket, without its last `unsummed` bytes.
    checksum: crc32fast::Hasher,
    unsummed: usize,
    waiting: Vec<u8>,
}

impl<'a> RunOutput<'a> {
    /// Creates the file, or replaces it.
    pub fn create(path: &'a str, seed: u64, layout: Layout) -> Result<Self> {
        let mut file = File::create(path).map_err(RunError::io(path))?;
        file.write_all(&[0; HEADER_SIZE as usize]).map_err(RunError::io(path))?;
        Ok(Self {
            path,
            file,
            seed,
            layout,
            entries: 0,
            ends: Vec::new(),
            checksum: begin_checksum(0),
            unsummed: 0,
            waiting: Vec::with_capacity(WRITE_BYTES + 64),
        })
    }

    /// Appends an entry, whose fingerprint is not lower than the one before.
    #[inline]
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        let bucket = self.layout.bucket_of(&entry);
        while (self.ends.len() as u64) < bucket {
            self.end_bucket();
        }
        self.layout.write(entry, &mut self.waiting);
        self.unsummed += self.layout.width();
        self.entries += 1;
        if self.waiting.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the rest, and waits until the disk has everything. Returns the number of entries.
    pub fn finish(mut self) -> Result<u64> {
        while (self.ends.len() as u64) < self.layout.buckets() {
            self.end_bucket();
        }
        let (layout, seed, entries) = (self.layout, self.seed, self.entries);
        let mut header = Header { layout, seed, entries, checksum: 0 };
        let mut directory = crc32fast::Hasher::new();
        for number in 0..self.ends.len() {
            let difference = self.ends[number] as i64 - header.even_end(number as u64) as i64;
            let difference = i32::try_from(difference)
                .map_err(|_| RunError::Refused("two billion rows have one key".to_owned()))?;
            directory.update(&difference.to_le_bytes());
            self.waiting.extend(difference.to_le_bytes());
            if self.waiting.len() >= WRITE_BYTES {
                self.write()?;
            }
        }
        self.write()?;
        header.checksum = directory.finalize();
        let written = self.file.sync_data().and_then(|()| self.file.write_all_at(&header.to_bytes(), 0));
        written.and_then(|()| self.file.sync_all()).map_err(RunError::io(self.path))?;
        Ok(self.entries)
    }

    fn end_bucket(&mut self) {
        self.add_to_checksum();
        let next = begin_checksum(self.ends.len() as u64 + 1);
        let checksum = std::mem::replace(&mut self.checksum, next).finalize();
        self.waiting.extend(checksum.to_le_bytes());
        self.ends.push(self.entries);
    }

    fn add_to_checksum(&mut self) {
        let start = self.waiting.len() - self.unsummed;
        self.checksum.update(&self.waiting[start..]);
        self.unsummed = 0;
    }

    fn write(&mut self) -> Result<()> {
        self.add_to_checksum();
        self.file.write_all(&self.waiting).map_err(RunError::io(self.path))?;
        self.waiting.clear();
        Ok(())
    }
}
