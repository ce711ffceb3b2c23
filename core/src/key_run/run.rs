//! Reads runs: opens them, finds keys in them, and checks them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use arrow_array::RecordBatch;

use super::fingerprint::Fingerprints;
use super::format::{begin_checksum, bucket_of, read_entry, word, Header, CHECKSUM_SIZE, HEADER_SIZE};
use super::{Entry, Result, RunError};

/// Bytes that are read at a time when many buckets are needed.
const READ_BYTES: u64 = 256 * 1024;
/// Buckets that are needed are read together if at most so many bytes are between them. Reading a few KB
/// costs as much as another call.
const GAP_BYTES: u64 = 4096;
/// Bytes before those of a bucket in a buffer, so that 16 bytes are before the end of its first entry.
const MARGIN: usize = 16;

/// Bytes that can be read from any place by several threads.
pub trait ReadAt: Send + Sync {
    fn size(&self) -> io::Result<u64>;
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let part = usize::try_from(offset).ok().and_then(|start| self.get(start..)?.get(..bytes.len()));
        bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// An open run. Of its file, the directory is in memory: a sixteenth of a byte for each entry.
pub struct KeyRun {
    path: String,
    source: Box<dyn ReadAt>,
    header: Header,
    /// By bucket: where it ends, as the difference from `Header::even_end`.
    directory: Vec<i32>,
}

/// The rows that have a key which was searched for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The key's row in the batch.
    pub keys: Vec<i64>,
    pub files: Vec<i32>,
    pub rows: Vec<i64>,
}

impl KeyRun {
    pub fn open(path: &str) -> Result<Self> {
        let file = File::open(path).map_err(RunError::io(path))?;
        Self::of(path, Box::new(file))
    }

    /// `path` is for errors.
    pub fn of(path: &str, source: Box<dyn ReadAt>) -> Result<Self> {
        let size = source.size().map_err(RunError::io(path))?;
        let mut bytes = [0; HEADER_SIZE as usize];
        if size < HEADER_SIZE {
            return Err(RunError::damaged(path, format!("it has only {size} bytes")));
        }
        source.read_exact_at(&mut bytes, 0).map_err(RunError::io(path))?;
        let header = Header::from_bytes(&bytes, size, path)?;
        let directory = read_directory(path, source.as_ref(), &header)?;
        Ok(Self { path: path.to_owned(), source, header, directory })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn seed(&self) -> u64 {
        self.header.seed
    }

    pub fn len(&self) -> u64 {
        self.header.entries
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries that have the fingerprint of a key, in the order of the keys. Several may have one, and
    /// those of one key are in no certain order.
    pub fn find(&self, keys: &RecordBatch) -> Result<Found> {
        // In place of a data file's row, these have the key's row in the batch.
        let mut wanted: Vec<Entry> = Vec::with_capacity(keys.num_rows());
        Fingerprints::new(self.header.seed).for_each(keys, |row, hash| {
            wanted.push(Entry::new(hash, 0, row as u32));
            Ok::<_, RunError>(())
        })?;
        wanted.sort_unstable();
        let bucket_of = |entry: &Entry| bucket_of(*entry, self.header.bits);
        let mut found: Vec<(u32, Entry)> = Vec::with_capacity(wanted.len());
        let mut buckets = Buckets::new(self);
        let mut rest = wanted.as_slice();
        while let Some(bucket) = rest.first().map(bucket_of) {
            let count = rest.iter().take_while(|entry| bucket_of(entry) == bucket).count();
            let (now, later) = rest.split_at(count);
            let range = buckets.read(bucket, later.iter().map(bucket_of))?;
            buckets.search(bucket, range, now, &mut found);
            rest = later;
        }
        found.sort_unstable_by_key(|(key, _)| *key);
        Ok(Found {
            keys: found.iter().map(|(key, _)| i64::from(*key)).collect(),
            files: found.iter().map(|(_, entry)| entry.file() as i32).collect(),
            rows: found.iter().map(|(_, entry)| i64::from(entry.row())).collect(),
        })
    }

    /// Reads the whole file and compares all checksums.
    pub fn verify(&self) -> Result<()> {
        let mut entries = Entries::of(self);
        while entries.next()?.is_some() {}
        Ok(())
    }

    /// Entries in all buckets before this one.
    fn before(&self, bucket: u64) -> u64 {
        match bucket.checked_sub(1) {
            None => 0,
            Some(last) => {
                let difference = i64::from(self.directory[last as usize]);
                self.header.even_end(last).wrapping_add_signed(difference)
            }
        }
    }

    /// The bytes from the start of `first` to the end of `last`.
    fn bytes_of(&self, first: u64, last: u64) -> Range<u64> {
        let start = self.header.bucket_start(first, self.before(first));
        start..self.header.bucket_start(last + 1, self.before(last + 1))
    }
}

/// Reads the directory and checks that its buckets follow each other up to the end.
fn read_directory(path: &str, source: &dyn ReadAt, header: &Header) -> Result<Vec<i32>> {
    let mut directory = Vec::with_capacity(header.buckets() as usize);
    let mut checksum = crc32fast::Hasher::new();
    let (mut position, end) = (header.directory_start(), header.directory_start() + 4 * header.buckets());
    let mut bytes = vec![0; READ_BYTES.min(end - position) as usize];
    let mut before = 0;
    while position < end {
        let part = &mut bytes[..READ_BYTES.min(end - position) as usize];
        source.read_exact_at(part, position).map_err(RunError::io(path))?;
        checksum.update(part);
        for at in (0..part.len()).step_by(4) {
            let difference = word(part, at) as i32;
            let even = header.even_end(directory.len() as u64);
            match even.checked_add_signed(i64::from(difference)) {
                Some(bucket_end) if (before..=header.entries).contains(&bucket_end) => before = bucket_end,
                _ => return Err(RunError::damaged(path, "its directory makes no sense")),
            }
            directory.push(difference);
        }
        position += part.len() as u64;
    }
    if checksum.finalize() != header.checksum || before != header.entries {
        return Err(RunError::damaged(path, "the checksum of its directory is wrong"));
    }
    Ok(directory)
}

/// Reads buckets in ascending order, several at a time where they are close together.
struct Buckets<'a> {
    run: &'a KeyRun,
    /// `MARGIN` bytes, then those of the file from `start` to `end`.
    bytes: Vec<u8>,
    start: u64,
    end: u64,
}

impl<'a> Buckets<'a> {
    fn new(run: &'a KeyRun) -> Self {
        Self { run, bytes: vec![0; MARGIN], start: 0, end: 0 }
    }

    /// Makes sure that the bytes of a bucket are there. `later` gives buckets that are needed next. Returns
    /// its entries' bytes in `bytes`, after their checksum was compared.
    fn read(&mut self, bucket: u64, later: impl Iterator<Item = u64>) -> Result<Range<usize>> {
        let run = self.run;
        let needed = run.bytes_of(bucket, bucket);
        if !(self.start <= needed.start && needed.end <= self.end) {
            let mut end = needed.end;
            for next in later {
                let more = run.bytes_of(next, next);
                if more.start > end + GAP_BYTES || more.end > needed.start + READ_BYTES {
                    break;
                }
                end = more.end;
            }
            let size = (end - needed.start) as usize;
            if self.bytes.len() < MARGIN + size {
                self.bytes.resize(MARGIN + size, 0);
            }
            let part = &mut self.bytes[MARGIN..MARGIN + size];
            (self.start, self.end) = (0, 0);
            run.source.read_exact_at(part, needed.start).map_err(RunError::io(&run.path))?;
            (self.start, self.end) = (needed.start, end);
        }
        let from = MARGIN + (needed.start - self.start) as usize;
        let to = MARGIN + (needed.end - self.start) as usize - CHECKSUM_SIZE;
        let mut checksum = begin_checksum(bucket);
        checksum.update(&self.bytes[from..to]);
        if checksum.finalize() != word(&self.bytes, to) {
            let reason = format!("the checksum at byte {} is wrong", needed.end - CHECKSUM_SIZE as u64);
            return Err(RunError::damaged(&run.path, reason));
        }
        Ok(from..to)
    }

    /// Adds the entries of a bucket, whose bytes are in `range`, that have one of the wanted fingerprints.
    /// These are sorted.
    fn search(&self, bucket: u64, range: Range<usize>, wanted: &[Entry], found: &mut Vec<(u32, Entry)>) {
        let (bits, width) = (self.run.header.bits, self.run.header.width());
        let count = range.len() / width;
        let entry = |at: usize| read_entry(&self.bytes, range.start + (at + 1) * width, bucket, bits);
        let mut from = 0;
        for one in wanted {
            let fingerprint = one.fingerprint();
            let (mut low, mut high) = (from, count);
            while low < high {
                let middle = (low + high) / 2;
                match entry(middle).fingerprint() < fingerprint {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            from = low;
            while low < count && entry(low).fingerprint() == fingerprint {
                found.push((one.row(), entry(low)));
                low += 1;
            }
        }
    }
}

/// All entries of a run in their order.
pub struct Entries<'a> {
    buckets: Buckets<'a>,
    bucket: u64,
    /// The bytes that are left of the bucket before `bucket`.
    rest: Range<usize>,
    last: u128,
}

impl<'a> Entries<'a> {
    pub fn of(run: &'a KeyRun) -> Self {
        Self { buckets: Buckets::new(run), bucket: 0, rest: 0..0, last: 0 }
    }

    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry>> {
        let header = &self.buckets.run.header;
        while self.rest.is_empty() {
            if self.bucket == header.buckets() {
                return Ok(None);
            }
            self.rest = self.buckets.read(self.bucket, self.bucket + 1..header.buckets())?;
            self.bucket += 1;
        }
        self.rest.start += header.width();
        let entry = read_entry(&self.buckets.bytes, self.rest.start, self.bucket - 1, header.bits);
        if entry.fingerprint() < self.last {
            return Err(RunError::damaged(&self.buckets.run.path, "its entries are not sorted"));
        }
        self.last = entry.fingerprint();
        Ok(Some(entry))
    }
}
