//! From the messages of a replication connection to records of a log.
//!
//! Changes of rows are stored as they were sent (`typed_rows::MESSAGE`). The messages around them become the
//! records that all logs have: where a transaction begins and ends, how its tables are defined, and what else
//! happens to them. Each transaction has the definitions of its tables, so that a reader can begin at any.
//!
//! What happens to a table counts where the transaction ends that says it (`typed_rows`). So a transaction in
//! which a table is emptied between its rows is written in parts, each with its id. They become durable
//! together, because the receiver keeps only what is whole (`is_whole`).

use std::collections::{HashMap, HashSet};

use serde_json::json;

use super::message::{Begin, Message, Relation};
use super::xids::full_id;
use crate::error::{DecodeError, Result};
use crate::typed_rows::write::Records;

/// Records of a transaction that goes on are given when there are so many bytes of them.
const HELD_MAX: usize = 8 << 20;
/// The id of transactions that the source did not have. It is in every set that a snapshot shows.
const NO_TRANSACTION: &str = "0";

/// What happens to a table: its schema, and JSON (`penstock.sources.logged_definitions`).
pub type Said = (String, String);
/// A message that describes a table: relation, schema, table, and the message.
pub type Described = (u32, String, String, Vec<u8>);

/// A partitioned table: its number, schema, name, and the numbers of its partitions that have rows.
pub type Root = (u32, String, String, Vec<u32>);

/// A table as the server has described it, and as the catalog defined it then.
struct Known {
    /// The message that described it.
    message: Vec<u8>,
    /// The number, schema and name under which its rows are stored: of a partition, those of its root.
    id: u32,
    schema: String,
    table: String,
    /// `key` and `columns`, as text.
    definition: String,
}

/// What the part of the open transaction has that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    Nothing,
    Rows,
    Statement,
}

#[derive(Default)]
pub struct Translator {
    records: Records,
    relations: HashMap<u32, Known>,
    transaction: Option<Begin>,
    part: Part,
    /// Whether the records that were given end inside a transaction.
    is_cut: bool,
    /// What has happened to tables, by their numbers, before the next rows that they have.
    said: HashMap<u32, Vec<Said>>,
    /// The tables that the part has defined, and the relations that their last definitions are of. Those of
    /// other partitions may have the columns in another order.
    defined: HashMap<u32, u32>,
    /// The partitions of partitioned tables that are not sent as their roots.
    partitions: HashMap<u32, HashSet<u32>>,
    /// The end of the last transaction whose records were given.
    pub end_lsn: u64,
    /// A transaction's id with its high bits: those of ids near to it.
    pub near: u64,
}

impl Translator {
    /// `end_lsn`: where the log ends. Transactions before it are left out. `near`: a transaction's whole id
    /// from about the same time.
    pub fn new(end_lsn: u64, near: u64) -> Self {
        Self { end_lsn, near, ..Self::default() }
    }

    /// The messages that describe a table which is not known, or not so.
    pub fn unknown<'a>(&self, messages: impl Iterator<Item = (u64, &'a [u8])>) -> Result<Vec<Described>> {
        let mut found = Vec::new();
        for (lsn, bytes) in messages.filter(|(_, bytes)| bytes.first() == Some(&b'R')) {
            if let Message::Relation(relation) = Message::parse(bytes, lsn)? {
                if self.relations.get(&relation.id).is_none_or(|known| known.message != bytes) {
                    let (schema, table) = (schema_of(&relation, lsn)?, text(relation.table, lsn)?);
                    found.push((relation.id, schema, table, bytes.to_owned()));
                }
            }
        }
        Ok(found)
    }

    /// The messages that described these relations, as far as they are known: as `unknown` gives them.
    pub fn described(&self, relations: &[u32]) -> Result<Vec<Described>> {
        let known = relations.iter().filter_map(|id| self.relations.get(id));
        let described = known.map(|known| {
            let Message::Relation(relation) = Message::parse(&known.message, 0)? else {
                return Err(DecodeError::new("this message describes no table", 0));
            };
            let (schema, table) = (schema_of(&relation, 0)?, text(relation.table, 0)?);
            Ok((relation.id, schema, table, known.message.clone()))
        });
        described.collect()
    }

    /// Says how the table of a message is defined (`key`, `columns`), before the message is translated, and
    /// what has happened to the table since the message before. That is said before the transaction with the
    /// next rows of the table. `root`: the table is a partition of this one.
    pub fn describe(
        &mut self,
        message: &[u8],
        definition: String,
        said: Vec<Said>,
        root: Option<Root>,
    ) -> Result<()> {
        let Message::Relation(relation) = Message::parse(message, 0)? else {
            return Err(DecodeError::new("this message describes no table", 0));
        };
        let (id, schema, table) = match root {
            Some((id, schema, table, partitions)) => {
                self.partitions.insert(id, partitions.into_iter().collect());
                (id, schema, table)
            }
            None => (relation.id, schema_of(&relation, 0)?, text(relation.table, 0)?),
        };
        self.relations
            .insert(relation.id, Known { message: message.to_owned(), id, schema, table, definition });
        self.defined.remove(&id);
        if !said.is_empty() {
            self.said.entry(id).or_default().extend(said);
        }
        Ok(())
    }

    /// The records that only say what has happened to tables. To be called between transactions.
    pub fn say(&self, said: &[Said], commit_us: i64) -> Vec<u8> {
        let (mut records, lsn) = (Records::default(), self.end_lsn);
        for (schema, json) in said {
            records.begin(lsn, commit_us, NO_TRANSACTION);
            records.statement(lsn, schema, json);
            records.commit(lsn);
        }
        records.bytes
    }

    /// The records of messages. Those of a transaction whose end has not come are kept until it comes, or
    /// until they are many.
    pub fn translate<'a>(&mut self, messages: impl Iterator<Item = (u64, &'a [u8])>) -> Result<Vec<u8>> {
        let mut ready = Vec::new();
        for (lsn, bytes) in messages {
            let ends = self.take(lsn, bytes)?;
            if ends || self.records.bytes.len() >= HELD_MAX {
                self.is_cut = !ends;
                match ready.is_empty() {
                    true => ready = std::mem::take(&mut self.records.bytes),
                    false => ready.append(&mut self.records.bytes),
                }
            }
        }
        Ok(ready)
    }

    /// Whether the records that were given end with a transaction.
    pub fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// Whether all that was described and translated is in the records that were given.
    pub fn is_settled(&self) -> bool {
        self.transaction.is_none() && self.said.is_empty()
    }

    /// Whether no transaction is open.
    pub fn is_idle(&self) -> bool {
        self.transaction.is_none()
    }

    fn take(&mut self, lsn: u64, bytes: &[u8]) -> Result<bool> {
        let Some(kind) = bytes.first() else { return Err(DecodeError::new("an empty message", lsn)) };
        match kind {
            b'I' | b'U' | b'D' => {
                let relation = bytes.get(1..5).and_then(|id| id.try_into().ok()).map(u32::from_be_bytes);
                let relation = relation.ok_or_else(|| DecodeError::new("a message is cut off", lsn))?;
                let (begin, id) = (self.begun(lsn)?, known(&self.relations, relation, lsn)?.id);
                if let Some(said) = self.said.remove(&id) {
                    self.state(begin, lsn, &said);
                }
                self.begin_part(begin, Part::Rows, lsn);
                self.define(relation, lsn)?;
                self.records.message(lsn, id, bytes);
            }
            b'R' | b'Y' | b'O' => {}
            _ => match Message::parse(bytes, lsn)? {
                Message::Begin(begin) => {
                    if self.transaction.is_some() {
                        return Err(DecodeError::new("a transaction begins within another one", lsn));
                    }
                    self.near = full_id(begin.xid, self.near);
                    self.transaction = Some(begin);
                    self.part = Part::Nothing;
                }
                Message::Commit(commit) => {
                    let begin = self.begun(lsn)?;
                    if self.part == Part::Nothing {
                        self.begin_part(begin, Part::Rows, lsn);
                    }
                    self.transaction = None;
                    self.end_lsn = commit.end_lsn;
                    self.records.commit(commit.end_lsn);
                    return Ok(true);
                }
                Message::Truncate { relations, .. } => {
                    let begin = self.begun(lsn)?;
                    for said in self.truncated(&relations, lsn)? {
                        self.state(begin, lsn, &said);
                    }
                }
                // Those outside of transactions are nothing that a table is.
                Message::Logical { .. } => {}
                _ => return Err(DecodeError::new("a message that cannot be here", lsn)),
            },
        }
        Ok(false)
    }

    /// What a TRUNCATE of relations says, by table. A table of which only some partitions are emptied is read
    /// again: which rows these had is not known.
    fn truncated(&mut self, relations: &[u32], lsn: u64) -> Result<Vec<Vec<Said>>> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for relation in relations {
            let Known { id, schema, table, definition, .. } = known(&self.relations, *relation, lsn)?;
            if !seen.insert(*id) {
                continue;
            }
            let of_root = self.partitions.get(id).filter(|_| id != relation);
            let statement = match of_root.is_some_and(|all| !all.iter().all(|one| relations.contains(one))) {
                true => {
                    let definition: serde_json::Value = serde_json::from_str(definition)
                        .map_err(|error| DecodeError::new(format!("a definition: {error}"), lsn))?;
                    json!({"table": table, "altered": definition, "reread": "a partition was emptied"})
                }
                false => json!({"table": table, "emptied": true}),
            };
            let mut said = self.said.remove(id).unwrap_or_default();
            said.push((schema.clone(), statement.to_string()));
            found.push(said);
        }
        Ok(found)
    }

    /// Says what has happened to tables, behind the rows that were written. Readers take one statement at a
    /// time: no two have the same end.
    fn state(&mut self, begin: Begin, lsn: u64, said: &[Said]) {
        for (schema, json) in said {
            self.begin_part(begin, Part::Statement, lsn);
            self.records.statement(lsn, schema, json);
        }
    }

    /// Ends the part of the open transaction that is being written, unless it goes on.
    fn begin_part(&mut self, begin: Begin, part: Part, lsn: u64) {
        if self.part == part && part == Part::Rows {
            return;
        }
        if self.part != Part::Nothing {
            self.records.commit(self.end_lsn); // the place is reached with the last part
        }
        self.records.begin(lsn, begin.commit_us, &self.near.to_string());
        self.defined.clear();
        self.part = part;
    }

    fn begun(&self, lsn: u64) -> Result<Begin> {
        self.transaction.ok_or_else(|| DecodeError::new("a message outside of a transaction", lsn))
    }

    fn define(&mut self, relation: u32, lsn: u64) -> Result<()> {
        let Known { id, schema, table, definition, .. } = known(&self.relations, relation, lsn)?;
        match self.defined.insert(*id, relation) {
            Some(other) if other == relation => return Ok(()),
            Some(other) if known(&self.relations, other, lsn)?.definition == *definition => return Ok(()),
            _ => {}
        }
        self.records.definition(lsn, *id, (schema, table), definition);
        Ok(())
    }
}

fn known(relations: &HashMap<u32, Known>, relation: u32, lsn: u64) -> Result<&Known> {
    let unknown = || DecodeError::new(format!("the server did not describe relation {relation}"), lsn);
    relations.get(&relation).ok_or_else(unknown)
}

fn schema_of(relation: &Relation<'_>, lsn: u64) -> Result<String> {
    if relation.schema.is_empty() {
        return Ok("pg_catalog".to_owned());
    }
    text(relation.schema, lsn)
}

fn text(bytes: &[u8], lsn: u64) -> Result<String> {
    String::from_utf8(bytes.to_owned()).map_err(|_| DecodeError::new("a name that is no UTF-8", lsn))
}
