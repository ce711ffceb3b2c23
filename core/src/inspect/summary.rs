//! Counts of what a file contains.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{json, Map, Value};

use super::names::event_name;
use super::timestamp::iso;
use crate::error::DecodeError;
use crate::mysql::event::EventKind;
use crate::mysql::gtid::{Gtid, GtidSet};
use crate::rows::RowsKind;
use crate::transaction_set::TransactionSet as _;

/// MariaDB's GTID.
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    pub domain: u32,
    pub server_id: u32,
    pub sequence: u64,
}

impl std::fmt::Display for Domain {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}-{}", self.domain, self.server_id, self.sequence)
    }
}

#[derive(Default)]
pub struct Summary {
    events: BTreeMap<u8, u64>,
    /// Of a file of records: how many there are of each kind.
    records: BTreeMap<&'static str, u64>,
    rows: BTreeMap<(&'static str, String), u64>,
    transactions: u64,
    first_us: Option<u64>,
    last_us: Option<u64>,
    gtids: GtidSet,
    /// MariaDB: the last GTID of each domain.
    domains: BTreeMap<u32, Domain>,
    notes: BTreeSet<&'static str>,
    /// What is wrong with the log, although everything in it can be read, and where.
    problems: Vec<(&'static str, u64)>,
}

impl Summary {
    pub fn count_event(&mut self, kind: EventKind) {
        *self.events.entry(kind.0).or_default() += 1;
    }

    pub fn count_record(&mut self, kind: &'static str) {
        *self.records.entry(kind).or_default() += 1;
    }

    /// Whether no event has been counted yet.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn count_row(&mut self, kind: RowsKind, table: &str) {
        let verb = match kind {
            RowsKind::Insert => "insert",
            RowsKind::Update => "update",
            RowsKind::Delete => "delete",
        };
        match self.rows.get_mut(&(verb, table.to_owned())) {
            Some(count) => *count += 1,
            None => drop(self.rows.insert((verb, table.to_owned()), 1)),
        }
    }

    pub fn count_transaction(&mut self, gtid: Option<&Gtid>, domain: Option<Domain>, commit_us: u64) {
        self.transactions += 1;
        self.first_us.get_or_insert(commit_us);
        self.last_us = Some(commit_us);
        if let Some(gtid) = gtid {
            self.gtids.add(gtid);
        }
        if let Some(domain) = domain {
            self.domains.insert(domain.domain, domain);
        }
    }

    /// Adds a warning, unless it is there already.
    pub fn note(&mut self, text: &'static str) {
        self.notes.insert(text);
    }

    pub fn problem(&mut self, text: &'static str, position: u64) {
        self.problems.push((text, position));
    }

    /// The GTIDs of a binlog file.
    pub fn gtids(&self) -> String {
        if self.domains.is_empty() {
            return self.gtids.to_string();
        }
        self.domains.values().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// `executed`: the transactions, and what the format calls the set of them.
    pub fn to_json(
        &self,
        file: &str,
        (word, executed): (&str, &str),
        failed: Option<&DecodeError>,
    ) -> String {
        let events: Map<String, Value> = self
            .events
            .iter()
            .map(|(kind, count)| (event_name(EventKind(*kind)).into_owned(), json!(count)))
            .chain(self.records.iter().map(|(kind, count)| ((*kind).to_owned(), json!(count))))
            .collect();
        let rows: Map<String, Value> = self
            .rows
            .iter()
            .map(|((verb, table), count)| (format!("{verb} {table}"), json!(count)))
            .collect();
        let problem =
            |message: &str, position: u64| json!({"message": message, "file": file, "position": position});
        let problems: Vec<Value> =
            self.problems.iter().map(|(text, position)| problem(text, *position)).collect();
        let error = failed.map(|error| problem(error.reason(), error.offset()));
        json!({
            "events": events,
            "rows": rows,
            "transactions": self.transactions,
            "first_ts": self.first_us.map(iso),
            "last_ts": self.last_us.map(iso),
            word: executed,
            "notes": self.notes,
            "problems": problems,
            "error": error,
        })
        .to_string()
    }
}
