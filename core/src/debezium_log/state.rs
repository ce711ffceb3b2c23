//! What a translator must know to continue where the log ends, and the records that have it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::records::RecordFile;
use crate::segment_file::SegmentFile;
use crate::typed_rows::{NAME, NOTE};

use super::message::Change;
use super::order::SeenByOrigin;
use super::table::Table;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Partition {
    pub topic: String,
    pub partition: i32,
    /// Names its series in logs that were begun when series had numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<u32>,
    /// The offset of the next message.
    pub next: u64,
    pub seen: SeenByOrigin,
    /// The table of its rows. None: not known, or there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Whether it has rows of several tables.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
    /// The hash of the key of the row that was deleted last, and is not there again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u32>,
}

impl Partition {
    /// The name of its transactions' series.
    pub fn series(&self) -> String {
        match self.domain {
            Some(domain) => format!("{domain}-1"),
            None => format!("{}:{}", self.topic, self.partition),
        }
    }

    /// It has a row of this table.
    pub fn note_table(&mut self, change: &Change<'_>) {
        let is = |known: &String| {
            known.strip_prefix(&*change.database).and_then(|rest| rest.strip_prefix('.'))
                == Some(&*change.table)
        };
        if self.mixed || self.table.as_ref().is_some_and(is) {
            return;
        }
        self.mixed = self.table.is_some();
        self.table = (!self.mixed).then(|| format!("{}.{}", change.database, change.table));
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    pub partitions: Vec<Partition>,
    pub tables: BTreeMap<String, Table>,
    /// The last number in the log's own series.
    pub number: u64,
}

#[derive(Serialize)]
enum Written<'a> {
    Whole(&'a State),
    Table { name: &'a str, table: &'a Table, number: u64 },
    Partition(&'a Partition),
}

#[derive(Deserialize)]
enum Read {
    Whole(State),
    Table { name: String, table: Table, number: u64 },
    Partition(Partition),
}

fn text(record: &Written<'_>) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

pub fn whole(state: &State) -> String {
    text(&Written::Whole(state))
}

pub fn of_table(name: &str, table: &Table, number: u64) -> String {
    text(&Written::Table { name, table, number })
}

pub fn of_partition(partition: &Partition) -> String {
    text(&Written::Partition(partition))
}

impl State {
    /// The state after records in the order of the log. None: they do not begin with a whole state.
    pub fn after(records: &[String]) -> std::result::Result<Option<Self>, String> {
        let mut state: Option<Self> = None;
        for record in records {
            let read: Read = serde_json::from_str(record).map_err(|error| error.to_string())?;
            match (read, &mut state) {
                (Read::Whole(found), _) => state = Some(found),
                (_, None) => {}
                (Read::Table { name, table, number }, Some(state)) => {
                    state.tables.insert(name, table);
                    state.number = number;
                }
                (Read::Partition(found), Some(state)) => {
                    let is_same = |known: &&mut Partition| {
                        (&known.topic, known.partition) == (&found.topic, found.partition)
                    };
                    match state.partitions.iter_mut().find(is_same) {
                        Some(known) => *known = found,
                        None => state.partitions.push(found),
                    }
                }
            }
        }
        Ok(state)
    }
}

/// The notes of a segment up to the offset `end`.
pub fn read(file: &SegmentFile, base: u64, end: u64) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let walked = RecordFile::open(file, base, NAME)?.each((base, end), &mut |record| {
        if record.kind == NOTE {
            notes.push(String::from_utf8_lossy(record.body).into_owned());
        }
        Ok(())
    });
    walked.map_err(|error| error.in_file(file.name()))?;
    Ok(notes)
}
