//! The records of the formats of `typed_rows`, as lines and counts like those of a binlog file.

use std::collections::HashMap;

use super::changes::{Changes, Reader, Words};
use super::summary::Summary;
use crate::error::{DecodeError, Result};
use crate::records::RecordFile;
use crate::segment_file::SegmentFile;
use crate::transaction_set::TransactionSet;
use crate::typed_rows::{
    begin_of, definition, id_of, message_of, rewritten_rows, rows_of, Definition, Family, Named, BEGIN,
    COMMIT, DEFINITION, MESSAGE, NOTE, ROWS, STATEMENT, USE,
};
use crate::window::Direction;

pub const WORDS: Words = Words { transaction: "transaction", transactions: "executed" };

/// A file of records, and where it is read.
pub struct Records<F: Family> {
    file: RecordFile,
    position: u64,
    end: u64,
    commit_us: u64,
    id: Option<<F::Set as TransactionSet>::Id>,
    executed: F::Set,
    columns: HashMap<u64, F::Columns>,
    scratch: F::Scratch,
    written: Vec<u8>,
}

impl<F: Family> Records<F> {
    /// `end`: the position where reading ends. None: the file's end.
    pub fn open(file: &SegmentFile, end: Option<u64>) -> Result<Self> {
        // Places in the file are counted from 0: the caller adds the file's offset.
        let opened = RecordFile::open(file, 0, F::NAME)?;
        let size =
            file.size().map_err(|error| crate::error::DecodeError::of_io("cannot be read", error, 0))?;
        let end = end.unwrap_or(u64::MAX).min(size);
        Ok(Self {
            position: opened.start(),
            file: opened,
            end,
            commit_us: 0,
            id: None,
            executed: F::Set::default(),
            columns: HashMap::new(),
            scratch: F::Scratch::default(),
            written: Vec::new(),
        })
    }
}

impl<F: Family> Reader for Records<F> {
    fn executed(&self, _: &Summary) -> String {
        self.executed.to_string()
    }

    fn step(&mut self, changes: &mut Changes) -> Result<bool> {
        if self.position >= self.end {
            return Ok(false);
        }
        let header = self.file.header(self.position, self.end)?;
        let record = self.file.record(self.position, header, Direction::Forward)?;
        let position = self.position;
        self.position += header.size;
        changes.summary.count_record(name_of(record.kind));
        match record.kind {
            BEGIN => {
                let (us, id) = begin_of(&record)?;
                (self.commit_us, self.id) = (us as u64, Some(id.parse()?));
                changes.transaction = Some(id.to_owned());
            }
            DEFINITION | USE => {
                let at = Named::parse(&record)?.at.unwrap_or(position);
                let (body, offset) = definition::read(&mut self.file, at)?;
                let definition = Definition::parse(&body, offset)?;
                let schema = definition.schema()?;
                let columns = F::columns(&definition, &schema)?;
                changes.define(definition.map_of(&schema, |index, kind| F::form(&columns, index, kind))?);
                self.columns.insert(definition.id, columns);
            }
            ROWS | MESSAGE => {
                let undefined = || DecodeError::new("rows without a definition before them", record.offset);
                let id = id_of(record.body, record.offset)?;
                let table = changes.tables.remove(&id).ok_or_else(undefined)?;
                let mut rows = match record.kind {
                    MESSAGE => {
                        let columns = self.columns.get(&id).ok_or_else(undefined)?;
                        let (scratch, written) = (&mut self.scratch, &mut self.written);
                        F::write(columns, message_of(&record)?, record.offset, scratch, written)?;
                        rewritten_rows(written, record.offset)?
                    }
                    _ => rows_of(&record)?,
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
        USE => "USE",
        ROWS | MESSAGE => "ROWS",
        STATEMENT => "STATEMENT",
        NOTE => "NOTE",
        COMMIT => "COMMIT",
        _ => "UNKNOWN",
    }
}
