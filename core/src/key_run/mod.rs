//! Runs of a key index: files that say in which row of which data file a key is.
//!
//! An entry has a fingerprint of the key, the number of a data file, and a row in it. A run has its entries
//! sorted by fingerprint, and never changes. Data files do not change either, so an entry stays true. Whether
//! its row still belongs to the table is not known here.
//!
//! **Fingerprints** are the first 72 bits of a hash with a secret seed (`fingerprint`). Two keys may have the
//! same one, though hardly ever: in a run of a billion entries, an absent key finds a row of another key once
//! in 4,700 billion look-ups. The caller must compare the keys themselves wherever that would matter.
//!
//! **A file** (`format`) has a header, buckets and a directory. The first bits of the fingerprint are the
//! bucket's number, and the directory says where each bucket ends. So a look-up reads one bucket, about 1.4
//! KB. Buckets do not store the bits that their number implies: an entry takes 16 bytes in a run with fewer
//! than 32 thousand entries, 15 in one with fewer than 8 million, and 14 in a larger one.
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

/// 72 bits of fingerprint, 24 bits of file, 32 bits of row. Entries sort by fingerprint first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(u128);

/// The bits of an entry below its fingerprint.
const PLACE_BITS: u32 = 24 + 32;

impl Entry {
    /// The bits of `hash` below the fingerprint are ignored. `file` is at most `FILE_MAX`.
    fn new(hash: u128, file: u32, row: u32) -> Self {
        let fingerprint = hash >> PLACE_BITS << PLACE_BITS;
        Self(fingerprint | u128::from(file) << 32 | u128::from(row))
    }

    fn fingerprint(self) -> u128 {
        self.0 >> PLACE_BITS
    }

    pub fn file(self) -> u32 {
        (self.0 >> 32) as u32 & FILE_MAX
    }

    pub fn row(self) -> u32 {
        self.0 as u32
    }

    fn with_file(self, file: u32) -> Self {
        Self::new(self.0, file, self.row())
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
