//! `penstock inspect`: reads one file of a log, without a server, a catalog or a relay log.
//!
//! It uses only what the file itself contains. If it cannot continue (a truncated or damaged file, row events
//! of an unknown type), everything before has been returned, and the error says where it stopped. Each format
//! has a [`Reader`] of its own, and what it finds becomes lines and counts in one way (`changes`).

mod binlog;
mod changes;
mod file;
mod known_table;
mod lines;
mod names;
mod records;
mod statement;
mod summary;
mod timestamp;
mod value;

use self::binlog::Binlog;
pub use self::changes::Options;
use self::changes::{Changes, Reader, Words};
use self::file::FileEvents;
use self::records::Records;
pub use self::statement::{read_statement, Statement};
use crate::error::{DecodeError, Result};
use crate::segment_file::SegmentFile;
use crate::typed_rows::Family;

pub struct Inspector {
    path: String,
    /// None: the file cannot be read.
    reader: Option<Box<dyn Reader>>,
    changes: Changes,
    failed: Option<DecodeError>,
}

impl Inspector {
    /// An inspector of a binlog file.
    pub fn open(file: &SegmentFile, options: Options) -> Self {
        let opened = FileEvents::open(file, options.end).map(Binlog::new);
        Self::over(file.name(), opened, binlog::WORDS, options)
    }

    /// An inspector of a segment of one of the formats of `typed_rows`.
    pub fn of_records<F: Family>(file: &SegmentFile, options: Options) -> Self {
        Self::over(file.name(), Records::<F>::open(file, options.end), records::WORDS, options)
    }

    /// An inspector of the bytes of a binlog file in memory.
    pub fn of_bytes(bytes: Vec<u8>, options: Options) -> Self {
        Self::over("", FileEvents::of_bytes(bytes).map(Binlog::new), binlog::WORDS, options)
    }

    fn over<R: Reader + 'static>(path: &str, opened: Result<R>, words: Words, options: Options) -> Self {
        let (reader, failed): (Option<Box<dyn Reader>>, _) = match opened {
            Ok(reader) => (Some(Box::new(reader)), None),
            Err(error) => (None, Some(error.in_file(path))),
        };
        Self { path: path.to_owned(), reader, changes: Changes::new(path, options, words), failed }
    }

    /// Returns about `limit` lines (with those of at most one event more), fewer at the end, and None after
    /// the last one. With `count_only`, `limit` counts events. An error is returned once, after all lines
    /// before it.
    pub fn next_lines(&mut self, limit: usize) -> Result<Option<Vec<String>>> {
        let mut events = 0;
        let mut ended = false;
        while self.failed.is_none() && self.changes.lines.len() < limit && !ended {
            match self.step() {
                Ok(more) => ended = !more,
                Err(error) => self.failed = Some(error.in_file(&self.path)),
            }
            events += 1;
            if self.changes.options.count_only && events >= limit {
                return Ok(Some(Vec::new()));
            }
        }
        if self.changes.lines.is_empty() {
            return match self.failed.clone() {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        let count = limit.max(1).min(self.changes.lines.len());
        Ok(Some(self.changes.lines.drain(..count).collect()))
    }

    /// A summary of what has been read, as JSON.
    pub fn summary(&self) -> String {
        let Changes { summary, file_name, words, .. } = &self.changes;
        let executed = self.reader.as_ref().map_or_else(String::new, |reader| reader.executed(summary));
        summary.to_json(file_name, (words.transactions, &executed), self.failed.as_ref())
    }

    /// Reads what comes next. Returns false at the end.
    fn step(&mut self) -> Result<bool> {
        self.reader.as_mut().map_or(Ok(false), |reader| reader.step(&mut self.changes))
    }
}
