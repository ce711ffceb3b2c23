//! Where the bytes of a segment are: in a file of this machine, or with somebody who fetches ranges, for
//! example from an object store.
//!
//! A ranged file is read in blocks. The blocks of its main part begin at the part's start, so that a reader
//! of one split fetches no more than the split. What lies outside it (the file's head, single events before
//! the split) is fetched in small pieces. The newest blocks are kept, up to a limit; several readers of one
//! file share them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a block outside the main part.
const PIECE_BYTES: u64 = 64 * 1024;

/// Bytes that can be read from any place.
pub trait Source: Read + Seek + Send + Sync {}
impl<T: Read + Seek + Send + Sync> Source for T {}

/// Returns bytes of a file. Whoever calls it checks how many came.
pub trait Fetch: Send + Sync {
    fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>>;
}

#[derive(Clone)]
pub enum SegmentFile {
    Local(String),
    Ranged(Arc<RangedFile>),
}

impl std::fmt::Debug for SegmentFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

impl From<&str> for SegmentFile {
    fn from(path: &str) -> Self {
        Self::Local(path.to_owned())
    }
}

impl SegmentFile {
    /// A path or a URL, for errors.
    pub fn name(&self) -> &str {
        match self {
            Self::Local(path) => path,
            Self::Ranged(file) => &file.name,
        }
    }

    pub fn open(&self) -> Result<Box<dyn Source>> {
        Ok(match self {
            Self::Local(path) => Box::new(File::open(path)?),
            Self::Ranged(file) => match file.local.as_ref().map(File::open) {
                Some(Ok(local)) => Box::new(local),
                Some(Err(error)) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => Box::new(RangedReader { file: file.clone(), position: 0 }),
            },
        })
    }

    /// The size of the file. Fails if it is no file.
    pub fn size(&self) -> Result<u64> {
        match self {
            Self::Ranged(file) => Ok(file.size),
            Self::Local(path) => {
                let metadata = std::fs::metadata(path)?;
                if metadata.is_file() {
                    return Ok(metadata.len());
                }
                Err(Error::new(ErrorKind::InvalidInput, "this is not a file"))
            }
        }
    }
}

/// A file whose bytes are fetched in ranges.
pub struct RangedFile {
    name: String,
    /// Path of a copy on this machine, which is read as long as it is there.
    local: Option<String>,
    size: u64,
    /// The main part.
    part: Range<u64>,
    block_bytes: u64,
    blocks_max: usize,
    fetch: Box<dyn Fetch>,
    /// The blocks that are kept, with the place of their first byte. The last one is the one used last.
    blocks: Mutex<VecDeque<(u64, Arc<[u8]>)>>,
}

impl RangedFile {
    /// `part`: what will be read of it, apart from single events. `cache_bytes`: about how much memory the
    /// blocks may take; at least two blocks are kept.
    pub fn new(
        name: String,
        size: u64,
        part: Range<u64>,
        block_bytes: u64,
        cache_bytes: u64,
        fetch: Box<dyn Fetch>,
    ) -> Self {
        let start = part.start.min(size);
        let part = start..part.end.clamp(start, size);
        let block_bytes = block_bytes.max(PIECE_BYTES);
        let blocks_max = (cache_bytes / block_bytes).clamp(2, 1 << 16) as usize;
        Self { name, local: None, size, part, block_bytes, blocks_max, fetch, blocks: Mutex::default() }
    }

    /// This file, with a copy on this machine that may vanish at any time.
    #[must_use]
    pub fn with_local(mut self, path: Option<String>) -> Self {
        self.local = path;
        self
    }

    /// The block that has the byte at `position`.
    fn extent(&self, position: u64) -> Range<u64> {
        let Range { start, end } = self.part;
        if self.part.contains(&position) {
            let first = start + (position - start) / self.block_bytes * self.block_bytes;
            return first..end.min(first.saturating_add(self.block_bytes));
        }
        let first = position / PIECE_BYTES * PIECE_BYTES;
        let last = self.size.min(first.saturating_add(PIECE_BYTES));
        if position < start {
            first..last.min(start)
        } else {
            first.max(end)..last
        }
    }

    fn block(&self, position: u64) -> Result<(u64, Arc<[u8]>)> {
        let extent = self.extent(position);
        if let Some(found) = self.known(extent.start) {
            return Ok((extent.start, found));
        }
        // Nothing is locked while others work: two readers may fetch the same block.
        let bytes = self.fetch.fetch(extent.clone())?;
        if bytes.len() as u64 != extent.end - extent.start {
            let (Range { start, end }, got) = (extent, bytes.len());
            let reason = format!("bytes {start} to {end} were asked for, {got} bytes came");
            return Err(Error::new(ErrorKind::InvalidData, reason));
        }
        let bytes: Arc<[u8]> = bytes.into();
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.retain(|(start, _)| *start != extent.start);
        blocks.push_back((extent.start, bytes.clone()));
        if blocks.len() > self.blocks_max {
            blocks.pop_front();
        }
        Ok((extent.start, bytes))
    }

    fn known(&self, start: u64) -> Option<Arc<[u8]>> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let at = blocks.iter().rposition(|(known, _)| *known == start)?;
        let block = blocks.remove(at)?;
        let bytes = block.1.clone();
        blocks.push_back(block);
        Some(bytes)
    }
}

struct RangedReader {
    file: Arc<RangedFile>,
    position: u64,
}

impl Read for RangedReader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.position >= self.file.size || buffer.is_empty() {
            return Ok(0);
        }
        let (start, block) = self.file.block(self.position)?;
        let left = block.get((self.position - start) as usize..).unwrap_or_default();
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for RangedReader {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let place = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.file.size.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position =
            place.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a place before the file"))?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers what was fetched of bytes whose values are their places.
    struct Counting {
        fetched: Arc<Mutex<Vec<Range<u64>>>>,
        /// Bytes more or fewer than asked for.
        wrong_by: i64,
    }

    impl Fetch for Counting {
        fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>> {
            self.fetched.lock().unwrap().push(range.clone());
            let end = range.end.saturating_add_signed(self.wrong_by);
            Ok((range.start..end).map(|at| at as u8).collect())
        }
    }

    fn file(
        size: u64,
        part: Range<u64>,
        cache: u64,
        wrong_by: i64,
    ) -> (SegmentFile, Arc<Mutex<Vec<Range<u64>>>>) {
        let fetched = Arc::default();
        let fetch = Counting { fetched: Arc::clone(&fetched), wrong_by };
        let file = RangedFile::new("it".into(), size, part, 100_000, cache, Box::new(fetch));
        (SegmentFile::Ranged(Arc::new(file)), fetched)
    }

    fn read(file: &SegmentFile, range: Range<u64>) -> Result<()> {
        let mut source = file.open()?;
        source.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        source.read_exact(&mut bytes)?;
        assert!(range.zip(&bytes).all(|(at, byte)| at as u8 == *byte));
        Ok(())
    }

    #[test]
    fn every_range_of_every_layout_of_blocks_has_its_bytes() {
        for part in
            [0..0, 0..1_000_000, 70_001..70_002, 65_536..365_536, 999_999..1_000_000, 400_000..2_000_000]
        {
            let (file, _) = file(1_000_000, part, 0, 0);
            for start in (0..1_000_000).step_by(77_773).chain([0, 65_535, 65_536, 70_000, 70_001, 399_999]) {
                for length in [0, 1, 2, 65_536, 100_000, 300_001] {
                    read(&file, start..(start + length).min(1_000_000)).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_split_is_fetched_once_and_nothing_beside_it_but_the_head() {
        let (file, fetched) = file(10_000_000, 500_123..900_123, 1 << 20, 0);
        read(&file, 0..200).unwrap();
        read(&file, 500_123..900_123).unwrap();
        read(&file, 500_123..900_123).unwrap();
        let bytes: u64 = fetched.lock().unwrap().iter().map(|range| range.end - range.start).sum();
        assert_eq!(bytes, 400_000 + PIECE_BYTES);
        assert_eq!(fetched.lock().unwrap().len(), 5);
    }

    #[test]
    fn the_memory_for_blocks_is_limited() {
        let (file, fetched) = file(10_000_000, 0..10_000_000, 300_000, 0);
        read(&file, 0..10_000_000).unwrap();
        let SegmentFile::Ranged(ranged) = &file else { unreachable!() };
        assert_eq!(ranged.blocks.lock().unwrap().len(), 3);
        read(&file, 9_700_000..10_000_000).unwrap();
        assert_eq!(fetched.lock().unwrap().len(), 100);
    }

    #[test]
    fn short_and_long_answers_are_errors() {
        for wrong_by in [-1, 1, -100_000, 100_000] {
            let (file, _) = file(1_000_000, 0..1_000_000, 0, wrong_by);
            let error = read(&file, 100_000..100_001).unwrap_err();
            assert!(error.to_string().starts_with("bytes 100000 to 200000 were asked for"), "{error}");
        }
    }

    #[test]
    fn the_file_ends_where_it_ends() {
        let (file, _) = file(1000, 0..5000, 0, 0);
        assert!(read(&file, 999..1001).is_err());
        assert!(read(&file, 5000..5001).is_err());
        assert_eq!(file.size().unwrap(), 1000);
        assert!(file.open().unwrap().seek(SeekFrom::End(-1001)).is_err());
    }
}
