//! Finds what the index entries of this format say.

use super::family::Family;
use super::{begin_of, id_of, statement_of, Named, BEGIN, COMMIT, DEFINITION, MESSAGE, ROWS, STATEMENT, USE};
use crate::entries::{Entries, Sent, STATEMENT_MAX};
use crate::error::Result;
use crate::json_text::quoted;
use crate::records::Record;
use crate::transaction_set::TransactionSet;

pub struct Tracker<F: Family> {
    pub log: Entries<F::Set, F::Place>,
    pub events: u64,
    transaction: Transaction<IdOf<F>, F::Place>,
}

type IdOf<F> = <<F as Family>::Set as TransactionSet>::Id;

/// The transaction whose records are being read.
struct Transaction<I, P> {
    id: Option<I>,
    commit_us: u64,
    start: u64,
    source: P,
    /// Its statements, as JSON up to their ends: they end where the transaction does.
    statements: Vec<String>,
}

impl<I, P: Default> Default for Transaction<I, P> {
    fn default() -> Self {
        Self { id: None, commit_us: 0, start: 0, source: P::default(), statements: Vec::new() }
    }
}

impl<F: Family> Tracker<F> {
    pub fn new(offset: u64, executed: F::Set, source: F::Place) -> Self {
        let log = Entries::new(offset, executed, source);
        Self { log, events: 0, transaction: Transaction::default() }
    }

    /// Takes a record at its offset. Transactions are whole.
    pub fn record(&mut self, record: &Record<'_>) -> Result<()> {
        self.events += 1;
        self.log.end = record.offset + record.raw.len() as u64;
        match record.kind {
            BEGIN => {
                let (commit_us, id) = begin_of(record)?;
                self.log.forget_many_names();
                self.transaction = Transaction {
                    id: Some(id.parse()?),
                    commit_us: commit_us as u64,
                    start: record.offset,
                    source: self.log.source.clone(),
                    statements: Vec::new(),
                };
            }
            DEFINITION | USE => {
                let Named { id, database, table, .. } = Named::parse(record)?;
                self.log.announce(id, database.as_bytes(), table.as_bytes());
            }
            ROWS | MESSAGE => {
                let id = id_of(record.body, record.offset)?;
                self.log.count(id, record.raw.len(), record.offset)?;
            }
            STATEMENT => {
                let (database, json) = statement_of(record)?;
                let timestamp = self.transaction.commit_us / 1_000_000;
                let (shown, cut) = match json.len() > STATEMENT_MAX {
                    true => ("", ",\"truncated\":true"),
                    false => (json, ""),
                };
                self.transaction.statements.push(format!(
                    "{{\"offset\":{},\"database\":{},\"sql\":{},\"timestamp\":{timestamp}{cut}",
                    record.offset,
                    quoted(database),
                    quoted(shown),
                ));
            }
            COMMIT => {
                let (log, transaction) = (&mut self.log, std::mem::take(&mut self.transaction));
                let end = log.end;
                let ended = transaction.statements.iter();
                log.span.statements.extend(ended.map(|text| format!("{text},\"end\":{end}}}")));
                if F::COMMITS_SAY_PLACES {
                    // What only says what happened to tables ends at an earlier place than is reached.
                    log.moved(&(String::new(), record.place).into(), false);
                }
                log.note_committed();
                log.ended.source = transaction.source;
                log.commit(transaction.start, transaction.id, transaction.commit_us, Sent::AsStored);
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the span and returns its entry. None: nothing has changed.
    pub fn cut(&mut self, extra: &str) -> Option<String> {
        if !self.log.has_news() {
            return None;
        }
        let entry = self.log.entry(extra);
        self.log.begin_span(None);
        Some(entry)
    }
}
