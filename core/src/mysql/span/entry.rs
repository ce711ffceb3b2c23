//! What only entries of this format have: prepared transactions, and the events of an open transaction.

use super::Tracker;
use crate::mysql::xa::Change;

impl Tracker {
    /// The event that began the transaction, and those that describe the tables of its rows.
    pub(super) fn open(&self) -> Option<Vec<u64>> {
        if self.group.is_idle() {
            return None;
        }
        let transaction = &self.transaction;
        let maps = transaction.maps.iter().map(|(_, offset)| *offset);
        let maps = maps.filter(|_| !transaction.maps_stale);
        let mut events: Vec<u64> = transaction.gtid_event.into_iter().chain(maps).collect();
        events.sort_unstable();
        Some(events)
    }

    /// The entry of the span up to here. `extra`: more fields, with a comma before them.
    pub fn entry(&self, extra: &str) -> String {
        if self.changes.is_empty() {
            return self.log.entry(extra);
        }
        let changes: Vec<String> = self.changes.iter().map(Change::json).collect();
        self.log.entry(&format!(",\"prepared\":[{}]{extra}", changes.join(",")))
    }
}
