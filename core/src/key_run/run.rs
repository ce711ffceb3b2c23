//! Reads runs: opens them, finds keys in them, and checks them.

use std::borrow::Borrow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;

use super::fingerprint::Fingerprints;
use super::format::{begin_checksum, word, Header, Layout, CHECKSUM_SIZE, HEADER_SIZE, MARGIN};
use super::{Entry, Result, RunError};

/// Bytes that are read at a time when many buckets are needed.
const READ_BYTES: u64 = 256 * 1024;
/// Buckets that are needed are read together if at most so many bytes are between them. Reading a few KB
/// costs as much as another call.
const GAP_BYTES: u64 = 4096;
/// If the first buckets take longer than this, they come from the disk. Then several threads read the others.
const TRIED_GROUPS: usize = 32;
const TRIED_TIME: Duration = Duration::from_micros(50 * TRIED_GROUPS as u64);
const THREADS: usize = 8;

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

/// A run. Of its file, the directory is in memory: a twelfth of a byte for each entry.
pub struct KeyRun {
    path: String,
    /// None: the file at `path`, which is opened whenever it is needed. An index of many tables has more runs
    /// than a process may have open files.
    source: Option<Arc<dyn ReadAt>>,
    header: Header,
    /// For each bucket, where it ends, as the difference from `Header::even_end`.
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
        let mut run = Self::of(path, Box::new(file))?;
        run.source = None;
        Ok(run)
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
        Ok(Self { path: path.to_owned(), source: Some(source.into()), header, directory })
    }

    fn source(&self) -> Result<Arc<dyn ReadAt>> {
        match &self.source {
            Some(source) => Ok(source.clone()),
            None => Ok(Arc::new(File::open(&self.path).map_err(RunError::io(&self.path))?)),
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The greatest file and the greatest row that its entries may have.
    pub fn maxima(&self) -> (u32, u32) {
        self.header.layout.maxima()
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
        let groups: Vec<Group<'_>> = wanted
            .chunk_by(|left, right| self.bucket_of(left) == self.bucket_of(right))
            .map(|wanted| Group { wanted, bucket: self.bucket(self.bucket_of(&wanted[0])) })
            .collect();
        let mut found = self.search(&groups)?;
        found.sort_unstable_by_key(|(key, _)| *key);
        Ok(Found {
            keys: found.iter().map(|(key, _)| i64::from(*key)).collect(),
            files: found.iter().map(|(_, entry)| entry.file() as i32).collect(),
            rows: found.iter().map(|(_, entry)| i64::from(entry.row())).collect(),
        })
    }

    /// Searches all groups. Several threads do it if the disk is waited for.
    fn search(&self, groups: &[Group<'_>]) -> Result<Vec<(u32, Entry)>> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let source = self.source()?;
        let search = |groups: &[Group<'_>]| self.search_in_turn(&source, groups);
        let (first, rest) = groups.split_at(groups.len().min(TRIED_GROUPS));
        let began = Instant::now();
        let mut found = search(first)?;
        if began.elapsed() < TRIED_TIME {
            found.extend(search(rest)?);
            return Ok(found);
        }
        let share = rest.len().div_ceil(THREADS).max(TRIED_GROUPS);
        let parts = std::thread::scope(|scope| {
            let started: Vec<_> = rest
                .chunks(share)
                .map(|part| (part, Builder::new().spawn_scoped(scope, || search(part))))
                .collect();
            let ended = started.into_iter().map(|(part, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // There are too many threads.
                Err(_) => search(part),
            });
            ended.collect::<Result<Vec<_>>>()
        });
        found.extend(parts?.into_iter().flatten());
        Ok(found)
    }

    fn search_in_turn(&self, source: &Arc<dyn ReadAt>, groups: &[Group<'_>]) -> Result<Vec<(u32, Entry)>> {
        let mut found = Vec::with_capacity(groups.len());
        let mut window = Window::new(self, source.clone());
        for (at, group) in groups.iter().enumerate() {
            let later = groups[at + 1..].iter().map(|group| &group.bucket);
            let bytes = window.read(&group.bucket, later)?;
            self.search_bucket(group, bytes, &mut found);
        }
        Ok(found)
    }

    /// Adds the entries of a bucket, whose bytes are given, that have one of the wanted fingerprints.
    fn search_bucket(&self, group: &Group<'_>, bytes: EntryBytes<'_>, found: &mut Vec<(u32, Entry)>) {
        let (count, mut first) = (bytes.len(), 0);
        for one in group.wanted {
            let fingerprint = one.fingerprint();
            let mut end = count;
            while first < end {
                let middle = (first + end) / 2;
                match bytes.fingerprint(middle) < fingerprint {
                    true => first = middle + 1,
                    false => end = middle,
                }
            }
            let equal = (first..count).take_while(|at| bytes.fingerprint(*at) == fingerprint);
            found.extend(equal.map(|at| (one.row(), bytes.entry(at))));
        }
    }

    /// Reads the whole file and compares all checksums.
    pub fn verify(&self) -> Result<()> {
        let mut entries = Entries::of(self)?;
        while entries.next()?.is_some() {}
        Ok(())
    }

    fn bucket_of(&self, entry: &Entry) -> u64 {
        self.header.layout.bucket_of(entry)
    }

    fn bucket(&self, number: u64) -> Bucket {
        let start = self.header.bucket_start(number, self.entries_before(number));
        let end = self.header.bucket_start(number + 1, self.entries_before(number + 1));
        Bucket { number, start, end }
    }

    /// The entries in all buckets before the one with this number.
    fn entries_before(&self, number: u64) -> u64 {
        let Some(last) = number.checked_sub(1) else { return 0 };
        self.header.even_end(last).wrapping_add_signed(self.directory[last as usize].into())
    }
}

/// Where a bucket is in the file.
struct Bucket {
    number: u64,
    start: u64,
    end: u64,
}

/// Fingerprints that are searched for in one bucket, sorted.
struct Group<'a> {
    wanted: &'a [Entry],
    bucket: Bucket,
}

/// The bytes of the entries of a bucket, behind `MARGIN` other bytes.
struct EntryBytes<'a> {
    bytes: &'a [u8],
    bucket: u64,
    layout: Layout,
    width: usize,
}

impl EntryBytes<'_> {
    fn len(&self) -> usize {
        (self.bytes.len() - MARGIN) / self.width
    }

    #[inline]
    fn entry(&self, at: usize) -> Entry {
        self.layout.read(self.bytes, MARGIN + at * self.width, self.bucket)
    }

    #[inline]
    fn fingerprint(&self, at: usize) -> u128 {
        self.layout.read_fingerprint(self.bytes, MARGIN + at * self.width, self.bucket)
    }
}

/// Reads the directory and checks that its buckets follow each other up to the end.
fn read_directory(path: &str, source: &dyn ReadAt, header: &Header) -> Result<Vec<i32>> {
    let mut directory = Vec::with_capacity(header.layout.buckets() as usize);
    let mut checksum = crc32fast::Hasher::new();
    let (mut position, end) =
        (header.directory_start(), header.directory_start() + 4 * header.layout.buckets());
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
struct Window<'a> {
    run: &'a KeyRun,
    source: Arc<dyn ReadAt>,
    /// `MARGIN` bytes, then those of the file from `start` to `end`.
    bytes: Vec<u8>,
    start: u64,
    end: u64,
}

impl<'a> Window<'a> {
    fn new(run: &'a KeyRun, source: Arc<dyn ReadAt>) -> Self {
        Self { run, source, bytes: vec![0; MARGIN], start: 0, end: 0 }
    }

    /// Reads a bucket and compares its checksum. `later`: buckets that are needed next.
    fn read<B: Borrow<Bucket>>(
        &mut self,
        bucket: &Bucket,
        later: impl Iterator<Item = B>,
    ) -> Result<EntryBytes<'_>> {
        let run = self.run;
        if bucket.start < self.start || self.end < bucket.end {
            let mut end = bucket.end;
            for next in later {
                let next = next.borrow();
                if next.start > end + GAP_BYTES || next.end > bucket.start + READ_BYTES {
                    break;
                }
                end = next.end;
            }
            self.fill(bucket.start, end)?;
        }
        let from = (bucket.start - self.start) as usize;
        let to = MARGIN + (bucket.end - self.start) as usize - CHECKSUM_SIZE;
        let mut checksum = begin_checksum(bucket.number);
        checksum.update(&self.bytes[from + MARGIN..to]);
        if checksum.finalize() != word(&self.bytes, to) {
            let reason = format!("the checksum at byte {} is wrong", bucket.end - CHECKSUM_SIZE as u64);
            return Err(RunError::damaged(&run.path, reason));
        }
        let (layout, width) = (run.header.layout, run.header.layout.width());
        Ok(EntryBytes { bytes: &self.bytes[from..to], bucket: bucket.number, layout, width })
    }

    fn fill(&mut self, start: u64, end: u64) -> Result<()> {
        let size = (end - start) as usize;
        if self.bytes.len() < MARGIN + size {
            self.bytes.resize(MARGIN + size, 0);
        }
        // Until the bytes are there, the window is empty.
        (self.start, self.end) = (0, 0);
        let bytes = &mut self.bytes[MARGIN..MARGIN + size];
        self.source.read_exact_at(bytes, start).map_err(RunError::io(&self.run.path))?;
        (self.start, self.end) = (start, end);
        Ok(())
    }
}

/// All entries of a run in their order.
pub struct Entries<'a> {
    run: &'a KeyRun,
    window: Window<'a>,
    /// The number of the next bucket.
    next: u64,
    /// The entries of the bucket before, in reverse order.
    waiting: Vec<Entry>,
}

impl<'a> Entries<'a> {
    pub fn of(run: &'a KeyRun) -> Result<Self> {
        Ok(Self { run, window: Window::new(run, run.source()?), next: 0, waiting: Vec::new() })
    }

    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry>> {
        while self.waiting.is_empty() {
            if self.next == self.run.header.layout.buckets() {
                return Ok(None);
            }
            self.read_bucket()?;
        }
        Ok(self.waiting.pop())
    }

    fn read_bucket(&mut self) -> Result<()> {
        let run = self.run;
        let later = (self.next + 1..run.header.layout.buckets()).map(|number| run.bucket(number));
        let bytes = self.window.read(&run.bucket(self.next), later)?;
        self.waiting.extend((0..bytes.len()).rev().map(|at| bytes.entry(at)));
        let sorted = self.waiting.is_sorted_by(|left, right| left.fingerprint() >= right.fingerprint());
        if !sorted {
            return Err(RunError::damaged(&run.path, "its entries are not sorted"));
        }
        self.next += 1;
        Ok(())
    }
}
