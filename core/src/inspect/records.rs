//! The records of the format `rows` (`typed_rows`), as lines and counts like those of a binlog file.

use crate::error::Result;
use crate::mysql::gtid::Gtid;
use crate::records::{Record, RecordFile};
use crate::segment_file::SegmentFile;
use crate::typed_rows::{begin_of, BEGIN, COMMIT, DEFINITION, NAME, NOTE, ROWS, STATEMENT};
use crate::window::Direction;

/// Takes a record, with the time and the id of its transaction.
type Take<'a> = dyn FnMut(&Record<'_>, u64, Option<&Gtid>) -> Result<()> + 'a;

/// A file of records, and where it is read.
pub struct Records {
    file: RecordFile,
    position: u64,
    end: u64,
    commit_us: u64,
    gtid: Option<Gtid>,
}

impl Records {
    /// `end`: the position where reading ends. None: the file's end.
    pub fn open(file: &SegmentFile, end: Option<u64>) -> Result<Self> {
        // Places in the file are counted from 0: the caller adds the file's offset.
        let opened = RecordFile::open(file, 0, NAME)?;
        let size =
            file.size().map_err(|error| crate::error::DecodeError::of_io("cannot be read", error, 0))?;
        let end = end.unwrap_or(u64::MAX).min(size);
        Ok(Self { position: opened.start(), file: opened, end, commit_us: 0, gtid: None })
    }

    /// Gives the next record, with the time and the id of its transaction. Returns false at the end.
    pub fn step(&mut self, take: &mut Take<'_>) -> Result<bool> {
        if self.position >= self.end {
            return Ok(false);
        }
        let header = self.file.header(self.position, self.end)?;
        let record = self.file.record(self.position, header, Direction::Forward)?;
        self.position += header.size;
        if record.kind == BEGIN {
            let (us, id) = begin_of(&record)?;
            (self.commit_us, self.gtid) = (us as u64, Some(id.parse()?));
        }
        take(&record, self.commit_us, self.gtid.as_ref())?;
        Ok(true)
    }
}

pub fn name_of(kind: u8) -> &'static str {
    match kind {
        BEGIN => "BEGIN",
        DEFINITION => "DEFINITION",
        ROWS => "ROWS",
        STATEMENT => "STATEMENT",
        NOTE => "NOTE",
        COMMIT => "COMMIT",
        _ => "UNKNOWN",
    }
}
