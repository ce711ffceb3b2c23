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
use crate::event::FormatDescription;
use crate::log_file::LogFile;
use crate::row_log::{Take, Transactions};
use crate::source_names::SourceNames;
use crate::transaction::{Part, Selection, Survey, Walked};

/// The transactions of some parts, one after the other.
pub struct LogOrder {
    parts: std::vec::IntoIter<Part>,
    selection: Selection,
    open: Option<Open>,
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
        Self { parts: parts.into_iter(), selection, open: None, prepared: HashMap::new() }
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
        loop {
            if self.open.is_none() {
                let Some(part) = self.parts.next() else { return Ok(None) };
                self.open = Some(Open::new(Arc::new(part))?);
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            let found = open.survey(&self.selection).map_err(|error| error.in_file(open.part.file.name()))?;
            let Some(survey) = found else {
                self.open = None;
                continue;
            };
            if let Some(survey) = self.resolve(survey)? {
                return Ok(Some(survey));
            }
        }
    }

    fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>> {
        let name = survey.part.file.name();
        let here = self
            .open
            .as_mut()
            .filter(|open| open.part.base == survey.part.base && open.part.file.name() == name);
        let walked = match here {
            Some(open) => survey.walk(&mut open.file, &open.format, from, take),
            // An XA transaction that was prepared in another file.
            None => {
                let mut open = Open::new(survey.part.clone())?;
                survey.walk(&mut open.file, &open.format, from, take)
            }
        };
        walked.map_err(|error| error.in_file(name))
    }
}
