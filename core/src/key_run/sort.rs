//! Sorts more entries than fit into memory: sorted pieces go to the disk and are merged.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};

use super::{Entry, Result, RunError};

/// Bytes of an entry in a piece.
const ENTRY_SIZE: usize = 20;
/// So many pieces are merged into one, so that few files are open.
const PIECES_MAX: usize = 64;
/// Bytes of a piece that are read or written at a time.
const BUFFER_BYTES: usize = 128 * 1024;

/// A source of entries in ascending order of their fingerprints.
pub trait Sorted {
    fn next(&mut self) -> Result<Option<Entry>>;
}

/// Entries that are being collected. `memory_max` bytes of them are held.
pub struct Sorter {
    /// Pieces are files beside this path. They have no names, so none is left behind.
    path: String,
    held: Vec<Entry>,
    held_max: usize,
    pieces: Vec<Piece>,
    spilled: u64,
}

/// A sorted piece on the disk. `level`: how often its entries were merged.
struct Piece {
    file: File,
    level: u32,
}

impl Sorter {
    pub fn new(path: &str, memory_max: u64) -> Self {
        let held_max = (memory_max / size_of::<Entry>() as u64).clamp(1024, 1 << 40) as usize;
        Self { path: path.to_owned(), held: Vec::new(), held_max, pieces: Vec::new(), spilled: 0 }
    }

    pub fn len(&self) -> u64 {
        self.spilled + self.held.len() as u64
    }

    #[inline]
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        if self.held.len() == self.held_max {
            self.spill()?;
        }
        self.held.push(entry);
        Ok(())
    }

    /// Calls `take` with each entry in ascending order of fingerprints.
    pub fn drain(mut self, mut take: impl FnMut(Entry) -> Result<()>) -> Result<()> {
        self.sort();
        if self.pieces.is_empty() {
            return self.held.into_iter().try_for_each(take);
        }
        self.spill()?;
        self.held = Vec::new();
        merge(self.readers(0)?, |entry, _| take(entry))
    }

    fn sort(&mut self) {
        self.held.sort_unstable_by_key(|entry| entry.fingerprint());
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, self.unnamed()?);
        for entry in &self.held {
            output.write_all(&to_bytes(entry)).map_err(RunError::io(&self.path))?;
        }
        self.spilled += self.held.len() as u64;
        self.held.clear();
        self.keep(output, 0)
    }

    fn keep(&mut self, output: BufWriter<File>, level: u32) -> Result<()> {
        let file =
            output.into_inner().map_err(|error| error.into_error()).map_err(RunError::io(&self.path))?;
        self.pieces.push(Piece { file, level });
        let first = self.pieces.len().saturating_sub(PIECES_MAX);
        if self.pieces.len() >= PIECES_MAX && self.pieces[first].level == level {
            let mut merged = BufWriter::with_capacity(BUFFER_BYTES, self.unnamed()?);
            let path = self.path.clone();
            merge(self.readers(first)?, |entry, _| {
                merged.write_all(&to_bytes(&entry)).map_err(RunError::io(&path))
            })?;
            self.pieces.truncate(first);
            return self.keep(merged, level + 1);
        }
        Ok(())
    }

    fn readers(&self, first: usize) -> Result<Vec<PieceReader<'_>>> {
        let pieces = self.pieces[first..].iter();
        pieces.map(|piece| PieceReader::of(piece, &self.path)).collect()
    }

    /// A new file for reading and writing that goes away with its last user.
    fn unnamed(&self) -> Result<File> {
        let name = format!("{}.sort", self.path);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&name);
        let file = file.map_err(RunError::io(&name))?;
        fs::remove_file(&name).map_err(RunError::io(&name))?;
        Ok(file)
    }
}

struct PieceReader<'a> {
    input: BufReader<&'a File>,
    left: u64,
    path: &'a str,
}

impl<'a> PieceReader<'a> {
    fn of(piece: &'a Piece, path: &'a str) -> Result<Self> {
        use std::io::Seek;
        let mut file = &piece.file;
        let size = file.metadata().and_then(|metadata| file.rewind().map(|()| metadata.len()));
        let left = size.map_err(RunError::io(path))? / ENTRY_SIZE as u64;
        Ok(Self { input: BufReader::with_capacity(BUFFER_BYTES, file), left, path })
    }
}

impl Sorted for PieceReader<'_> {
    #[inline]
    fn next(&mut self) -> Result<Option<Entry>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut bytes = [0; ENTRY_SIZE];
        self.input.read_exact(&mut bytes).map_err(RunError::io(self.path))?;
        Ok(Some(from_bytes(&bytes)))
    }
}

fn to_bytes(entry: &Entry) -> [u8; ENTRY_SIZE] {
    let mut bytes = [0; ENTRY_SIZE];
    bytes[..8].copy_from_slice(&entry.high.to_le_bytes());
    for (at, word) in [entry.low, entry.file, entry.row].iter().enumerate() {
        bytes[8 + 4 * at..12 + 4 * at].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8; ENTRY_SIZE]) -> Entry {
    let [first, second, low, file, row] =
        std::array::from_fn(|at| u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * at + byte])));
    Entry { high: u64::from(first) | u64::from(second) << 32, low, file, row }
}

/// Calls `take` with the entries of all sources in ascending order of their fingerprints, each with the
/// number of its source.
pub fn merge<S: Sorted>(mut sources: Vec<S>, mut take: impl FnMut(Entry, usize) -> Result<()>) -> Result<()> {
    // The next entry of each source that has one.
    let mut heap = BinaryHeap::with_capacity(sources.len());
    for (number, source) in sources.iter_mut().enumerate() {
        if let Some(entry) = source.next()? {
            heap.push(Reverse(Next { fingerprint: entry.fingerprint(), number, entry }));
        }
    }
    while let Some(mut first) = heap.peek_mut() {
        let Reverse(Next { number, entry, .. }) = *first;
        take(entry, number)?;
        match sources[number].next()? {
            Some(entry) => *first = Reverse(Next { fingerprint: entry.fingerprint(), number, entry }),
            None => drop(PeekMut::pop(first)),
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    fingerprint: u128,
    number: usize,
    entry: Entry,
}
