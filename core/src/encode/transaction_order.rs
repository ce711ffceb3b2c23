//! What Debezium says of a change's place in its transaction.

use super::columns::Table;
use super::json_text::quoted;
use super::source_info::SourceInfo;
use crate::transaction::Transaction;

#[derive(Default)]
pub struct TransactionOrder {
    pub id: String,
    /// Name of each table, and its changes so far. The table of the present event is the last one.
    pub counts: Vec<(String, u64)>,
    pub total: u64,
}

impl TransactionOrder {
    pub fn begin(&mut self, transaction: &Transaction, info: &SourceInfo) {
        (self.total, self.counts) = (0, Vec::new());
        self.id = (info.transaction_id)(transaction);
    }

    /// The order of tables in the END message is that of their last events, which needs no look-up for each
    /// row.
    pub fn event(&mut self, table: &Table) {
        let name = format!("{}.{}", table.database, table.name);
        match self.counts.iter().position(|(known, _)| *known == name) {
            Some(at) => {
                let known = self.counts.remove(at);
                self.counts.push(known);
            }
            None => self.counts.push((name, 0)),
        }
    }

    /// The next change's number in the transaction, and among those of its table.
    #[inline]
    pub fn count(&mut self) -> (u64, u64) {
        self.total += 1;
        let of_table = self.counts.last_mut().map_or(0, |(_, count)| {
            *count += 1;
            *count
        });
        (self.total, of_table)
    }

    pub fn id_json(&self) -> String {
        quoted(&self.id)
    }
}
