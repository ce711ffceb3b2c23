//! What only entries of this format have: prepared transactions, and the events of an open transaction.

use std::fmt::Write as _;

use super::Tracker;
use crate::mysql::xa::Change;

impl Tracker {
    pub(super) fn open(&self) -> Option<String> {
        if self.group.is_idle() {
            return None;
        }
        let mut text = String::from("{\"gtid_event\":");
        match self.transaction.gtid_event {
            Some(offset) => drop(write!(text, "{offset}")),
            None => text.push_str("null"),
        }
        text.push_str(",\"table_maps\":{");
        if !self.transaction.maps_stale {
            for (index, (slot, offset)) in self.transaction.maps.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                let _ = write!(text, "{comma}{}:{offset}", self.log.names.key(*slot));
            }
        }
        text.push_str("}}");
        Some(text)
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
