//! Runs of a key index: files that say in which row of which data file a key is.
//!
//! An entry has a fingerprint of the key, the number of a data file, and a row in it. A run has its entries
//! sorted by fingerprint, and never changes. Data files do not change either, so an entry stays true. Whether
//! its row still belongs to the table is not known here.
//!
//! **Fingerprints** are the first 88 bits of a hash with a secret seed (`fingerprint`). Two keys may have the
//! same one, though hardly ever: in an index of 100 million rows, a key that is not in the table finds a row
//! of another key once in 3 * 10^18 look-ups. With a thousand look-ups a second, that is once in a hundred
//! million years.
//!
//! **A file** (`format`) has a header, buckets and a directory. The first bits of the fingerprint are the
//! bucket's number, and the directory says where each bucket ends. So a look-up reads one bucket, about 700
//! bytes. Buckets do not store the bits that their number implies, and numbers of files and rows have only as
//! many bytes as the greatest one in the run needs. An entry of a run with a few million of them takes 14.
//!
//! **Damage** is always noticed. Header and directory have checksums that are compared when a run is opened,
//! together with the size of the file. Each bucket has one that is compared whenever it is read. The header
//! is written last.
//!
//! Files are read and not mapped: a mapped file that shrinks, or a disk that fails, would kill the process.

mod fingerprint;
mod format;
mod merge;
mod output;
mod run;
mod sort;
mod writer;

use std::fmt;
use std::io;

use crate::error::ValueError;

pub use fingerprint::Fingerprints;
pub use merge::{merge, Input};
pub use run::{Found, KeyRun, ReadAt};
pub use writer::KeyRunWriter;

/// The greatest number of a data file.
pub const FILE_MAX: u32 = (1 << 24) - 1;

/// Bits of a fingerprint.
const FINGERPRINT_BITS: u32 = 88;

/// A fingerprint, the number of a data file, and a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The first 64 bits of the fingerprint, and the other 24.
    high: u64,
    low: u32,
    file: u32,
    row: u32,
}

impl Entry {
    /// The fingerprint is the first bits of `hash`.
    fn new(hash: u128, file: u32, row: u32) -> Self {
        Self::with_fingerprint(hash >> (128 - FINGERPRINT_BITS), file, row)
    }

    #[inline]
    fn with_fingerprint(fingerprint: u128, file: u32, row: u32) -> Self {
        let low = fingerprint as u32 & ((1 << (FINGERPRINT_BITS - 64)) - 1);
        Self { high: (fingerprint >> (FINGERPRINT_BITS - 64)) as u64, low, file, row }
    }

    #[inline]
    fn fingerprint(self) -> u128 {
        u128::from(self.high) << (FINGERPRINT_BITS - 64) | u128::from(self.low)
    }

    pub fn file(self) -> u32 {
        self.file
    }

    pub fn row(self) -> u32 {
        self.row
    }
}

/// Why a run cannot be read or written.
#[derive(Debug)]
pub enum RunError {
    /// The file is not a whole run of this version.
    Damaged { path: String, reason: String },
    /// The disk.
    Io { path: String, cause: io::Error },
    /// What the caller gave.
    Refused(String),
}

pub type Result<T> = std::result::Result<T, RunError>;

impl RunError {
    #[cold]
    fn damaged(path: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    #[cold]
    fn io(path: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |cause| Self::Io { path: path.to_owned(), cause }
    }
}

impl From<ValueError> for RunError {
    fn from(error: ValueError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { path, reason } => write!(out, "{path} is not an intact key run: {reason}"),
            Self::Io { path, cause } => write!(out, "{path}: {cause}"),
            Self::Refused(reason) => out.write_str(reason),
        }
    }
}

impl std::error::Error for RunError {}
