//! The records of the format `rows` (`typed_rows`), as lines and counts like those of a binlog file.

use super::changes::{Changes, Reader, Words};
use super::summary::Summary;
use crate::error::{DecodeError, Result};
use crate::records::RecordFile;
use crate::segment_file::SegmentFile;
use crate::transaction_set::TransactionSet as _;
use crate::typed_rows::{
    begin_of, rows_of, Definition, Id, SeriesSet, BEGIN, COMMIT, DEFINITION, NAME, NOTE, ROWS, STATEMENT,
};
use crate::window::Direction;

pub const WORDS: Words = Words { transaction: "transaction", transactions: "executed" };

/// A file of records, and where it is read.
pub struct Records {
    file: RecordFile,
    position: u64,
    end: u64,
    commit_us: u64,
    id: Option<Id>,
    executed: SeriesSet,
}

impl Records {
    /// `end`: the position where reading ends. None: the file's end.
    pub fn open(file: &SegmentFile, end: Option<u64>) -> Result<Self> {
        // Places in the file are counted from 0: the caller adds the file's offset.
        let opened = RecordFile::open(file, 0, NAME)?;
        let size =
            file.size().map_err(|error| crate::error::DecodeError::of_io("cannot be read", error, 0))?;
        let end = end.unwrap_or(u64::MAX).min(size);
        Ok(Self {
            position: opened.start(),
            file: opened,
            end,
            commit_us: 0,
            id: None,
            executed: SeriesSet::default(),
        })
    }
}

impl Reader for Records {
    fn executed(&self, _: &Summary) -> String {
        self.executed.to_string()
    }

    fn step(&mut self, changes: &mut Changes) -> Result<bool> {
        if self.position >= self.end {
            return Ok(false);
        }
        let header = self.file.header(self.position, self.end)?;
        let record = self.file.record(self.position, header, Direction::Forward)?;
        self.position += header.size;
        changes.summary.count_record(name_of(record.kind));
        match record.kind {
            BEGIN => {
                let (us, id) = begin_of(&record)?;
                (self.commit_us, self.id) = (us as u64, Some(id.parse()?));
                changes.transaction = Some(id.to_owned());
            }
            DEFINITION => {
                let definition = Definition::parse(&record)?;
                changes.define(definition.map_of(&definition.schema()?)?);
            }
            ROWS => {
                let mut rows = rows_of(&record)?;
                let Some(table) = changes.tables.remove(&rows.table_id) else {
                    return Err(DecodeError::new("rows without a definition before them", record.offset));
                };
                changes.take_rows((record.offset, self.commit_us), &mut rows, table)?;
            }
            COMMIT => {
                if let Some(id) = &self.id {
                    self.executed.add(id);
                }
                changes.summary.count_transaction(None, None, self.commit_us);
            }
            _ => {}
        }
        Ok(true)
    }
}

fn name_of(kind: u8) -> &'static str {
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
