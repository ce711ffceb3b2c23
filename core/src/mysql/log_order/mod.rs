//! Whole transactions in the order of the log, over all tables.
//!
//! Each transaction is read twice. The *survey* looks at headers, table maps and statements up to its end: it
//! finds the transaction's id, its last row, and rows that were taken back by ROLLBACK TO SAVEPOINT. Then the
//! *walk* gives its row events to whoever asked for them. So a row's message can have what the log says only
//! behind the row, and the memory does not depend on the transaction's size.
//!
//! Rows of an XA transaction are in the log where it was prepared. They are given at its XA COMMIT. (In a
//! relay log of Penstock they are there already.)

mod events;
mod survey;

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{DecodeError, Result};
use crate::mysql::event::FormatDescription;
use crate::mysql::log_file::LogFile;
use crate::mysql::source_names::SourceNames;
use crate::parts::Parts;
use crate::row_log::{Take, Transactions};
use crate::transaction::{Part, Selection, Survey, Walked};

/// The transactions of some parts, one after the other.
pub struct LogOrder {
    parts: Parts<Open>,
    /// The prepared XA transactions, by xid.
    prepared: HashMap<String, Survey>,
}

struct Open {
    part: Arc<Part>,
    file: LogFile,
    format: FormatDescription,
    position: u64,
    end: u64,
    names: SourceNames,
}

impl LogOrder {
    pub fn new(parts: Vec<Part>, selection: Selection) -> Self {
        Self { parts: Parts::new(parts, selection), prepared: HashMap::new() }
    }

    /// Puts the rows of XA transactions where they are committed.
    fn resolve(&mut self, mut survey: Survey) -> Result<Option<Survey>> {
        if let Some(xid) = survey.prepares.take() {
            self.prepared.insert(xid, survey);
            return Ok(None);
        }
        if let Some(xid) = survey.rolls_back.take() {
            self.prepared.remove(&xid);
        }
        let Some(xid) = survey.commits.take() else { return Ok(Some(survey)) };
        let Some(mut rows) = self.prepared.remove(&xid) else {
            let reason = "an XA transaction is committed here that was prepared before this log begins; \
                          begin with the file in which it was prepared";
            return Err(DecodeError::new(reason, survey.transaction.start).in_file(survey.part.file.name()));
        };
        let thread_id = rows.transaction.thread_id;
        rows.transaction = survey.transaction;
        rows.transaction.thread_id = thread_id;
        Ok(Some(rows))
    }
}

impl Transactions for LogOrder {
    fn next_group(&mut self) -> Result<Option<Survey>> {
        while let Some(survey) = self.parts.next_group()? {
            if let Some(survey) = self.resolve(survey)? {
                return Ok(Some(survey));
            }
        }
        Ok(None)
    }

    fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>> {
        self.parts.walk(survey, from, take)
    }
}
