//! The records of the format `rows` (`typed_rows`) in an index entry.

use super::{Sent, Tracker, Transaction, SQL_DDL_MAX};
use crate::error::Result;
use crate::json_text::quoted;
use crate::records::Record;
use crate::typed_rows::{
    begin_of, id_of, statement_of, Definition, BEGIN, COMMIT, DEFINITION, ROWS, STATEMENT,
};

impl Tracker {
    /// Takes a record at its offset. Transactions are whole.
    pub fn record(&mut self, record: &Record<'_>) -> Result<()> {
        self.events += 1;
        self.end = record.offset + record.raw.len() as u64;
        match record.kind {
            BEGIN => {
                let (commit_us, id) = begin_of(record)?;
                self.forget_many_names();
                self.transaction = Transaction {
                    start: record.offset,
                    source_start: self.source.position,
                    gtid: Some(id.parse()?),
                    commit_us: Some(commit_us as u64),
                    ..Transaction::default()
                };
            }
            DEFINITION => {
                let definition = Definition::parse(record)?;
                let names = (definition.database.as_bytes(), definition.table.as_bytes());
                let slot = self.names.slot(definition.id, names.0, names.1);
                if slot == self.counts.len() {
                    self.counts.push((0, 0));
                }
            }
            ROWS => {
                let id = id_of(record.body, record.offset)?;
                self.count(id, record.raw.len(), record.offset)?;
            }
            STATEMENT => {
                let (database, json) = statement_of(record)?;
                let timestamp = self.transaction.commit_us.unwrap_or(0) / 1_000_000;
                let (shown, cut) = match json.len() > SQL_DDL_MAX {
                    true => ("", ",\"truncated\":true"),
                    false => (json, ""),
                };
                // It ends where its transaction does.
                self.transaction.statements.push(format!(
                    "{{\"offset\":{},\"database\":{},\"sql\":{},\"timestamp\":{timestamp}{cut}",
                    record.offset,
                    quoted(database),
                    quoted(shown),
                ));
            }
            COMMIT => {
                let end = self.end;
                let ended = self.transaction.statements.drain(..);
                self.span.statements.extend(ended.map(|text| format!("{text},\"end\":{end}}}")));
                self.note_committed();
                self.commit(Sent::AsStored);
            }
            _ => {}
        }
        Ok(())
    }
}
