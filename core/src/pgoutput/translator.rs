//! From the messages of a replication connection to records of a log.
//!
//! Changes of rows are stored as they were sent (`typed_rows::MESSAGE`). The messages around them become the
//! records that all logs have: where a transaction begins and ends, how its tables are defined, and what else
//! happens to them. Each transaction has the definitions of its tables, so that a reader can begin at any.

use std::collections::{HashMap, HashSet};

use serde_json::{json, Value as Json};

use super::message::{Begin, Message, Relation};
use super::xids::full_id;
use crate::error::{DecodeError, Result};
use crate::typed_rows::write::Records;

/// Records of a transaction that goes on are given when there are so many bytes of them.
const HELD_MAX: usize = 8 << 20;

/// A message that describes a table: relation, schema, table, and the message.
pub type Described = (u32, String, String, Vec<u8>);

/// A table as the server has described it, and as the catalog defined it then.
struct Known {
    /// The message that described it.
    message: Vec<u8>,
    schema: String,
    table: String,
    /// `key` and `columns`, as text.
    definition: String,
}

#[derive(Default)]
pub struct Translator {
    records: Records,
    relations: HashMap<u32, Known>,
    transaction: Option<Begin>,
    /// Where the open transaction begins in `records`. None: its first records were given.
    begins: Option<usize>,
    /// Whether the records that were given end inside a transaction.
    is_cut: bool,
    /// Schemas, and what was said of their tables, before the open transaction: their definitions changed.
    altered: Vec<(String, Json)>,
    /// The relations that the transaction has defined.
    defined: HashSet<u32>,
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

    /// Says how the table of a message is defined (`key`, `columns`), before the message is translated.
    pub fn describe(&mut self, message: &[u8], definition: String) -> Result<()> {
        let Message::Relation(relation) = Message::parse(message, 0)? else {
            return Err(DecodeError::new("this message describes no table", 0));
        };
        let known = Known {
            message: message.to_owned(),
            schema: schema_of(&relation, 0)?,
            table: text(relation.table, 0)?,
            definition,
        };
        if let Some(before) = self.relations.insert(relation.id, known) {
            self.alter(relation.id, &before);
        }
        self.defined.remove(&relation.id);
        Ok(())
    }

    /// The records of messages. Those of a transaction whose end has not come are kept until it comes, or
    /// until they are many.
    pub fn translate<'a>(&mut self, messages: impl Iterator<Item = (u64, &'a [u8])>) -> Result<Vec<u8>> {
        let mut ready = Vec::new();
        for (lsn, bytes) in messages {
            let ends = self.take(lsn, bytes)?;
            if ends || self.records.bytes.len() >= HELD_MAX {
                self.is_cut = !ends;
                self.begins = None;
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
                self.begun(lsn)?;
                self.define(relation, lsn)?;
                self.records.message(lsn, relation, bytes);
            }
            b'R' | b'Y' | b'O' => {}
            _ => match Message::parse(bytes, lsn)? {
                Message::Begin(begin) => {
                    if self.transaction.is_some() {
                        return Err(DecodeError::new("a transaction begins within another one", lsn));
                    }
                    self.near = full_id(begin.xid, self.near);
                    self.transaction = Some(begin);
                    self.defined.clear();
                    self.begins = Some(self.records.bytes.len());
                    self.records.begin(lsn, begin.commit_us, &self.near.to_string());
                }
                Message::Commit(commit) => {
                    self.begun(lsn)?;
                    self.transaction = None;
                    self.end_lsn = commit.end_lsn;
                    self.records.commit(commit.end_lsn);
                    return Ok(true);
                }
                Message::Truncate { relations, .. } => {
                    self.begun(lsn)?;
                    for relation in relations {
                        let Known { schema, table, .. } = known(&self.relations, relation, lsn)?;
                        let said = json!({"table": table, "emptied": true}).to_string();
                        self.records.statement(lsn, schema, &said);
                    }
                }
                // Those outside of transactions are nothing that a table is.
                Message::Logical { .. } => {}
                _ => return Err(DecodeError::new("a message that cannot be here", lsn)),
            },
        }
        Ok(false)
    }

    /// Notes what a new description says, if the table is another one now.
    fn alter(&mut self, relation: u32, before: &Known) {
        let Some(after) = self.relations.get(&relation) else { return };
        let is_same = (&before.schema, &before.table) == (&after.schema, &after.table);
        if is_same && before.definition != after.definition {
            let definition: Json = serde_json::from_str(&after.definition).unwrap_or_default();
            let said = json!({"table": after.table, "altered": definition});
            self.altered.push((after.schema.clone(), said));
        }
    }

    /// Writes what has changed as a transaction of its own, before the open one: its rows have the new
    /// definitions.
    fn say_altered(&mut self, lsn: u64) -> Result<()> {
        if self.altered.is_empty() {
            return Ok(());
        }
        let Some(begin) = self.transaction else { return self.begun(lsn) };
        let mut said = Records::default();
        said.begin(begin.commit_lsn, begin.commit_us, &self.near.to_string());
        for (schema, json) in self.altered.drain(..) {
            said.statement(lsn, &schema, &json.to_string());
        }
        said.commit(self.end_lsn);
        // Of a large transaction that has begun before: its later rows are told from its earlier ones by
        // their definitions, and do not fit.
        let at = self.begins.unwrap_or(self.records.bytes.len());
        if self.begins.is_some() {
            self.records.bytes.splice(at..at, said.bytes.iter().copied());
            self.begins = Some(at + said.bytes.len());
        }
        Ok(())
    }

    fn begun(&self, lsn: u64) -> Result<()> {
        match self.transaction {
            Some(_) => Ok(()),
            None => Err(DecodeError::new("a message outside of a transaction", lsn)),
        }
    }

    fn define(&mut self, relation: u32, lsn: u64) -> Result<()> {
        if self.defined.contains(&relation) {
            return Ok(());
        }
        self.say_altered(lsn)?;
        let Known { schema, table, definition, .. } = known(&self.relations, relation, lsn)?;
        self.records.definition(lsn, relation, (schema, table), definition);
        self.defined.insert(relation);
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

/// `key` and `columns` of a table. `types`: for the types that a server does not have from the beginning, the
/// type whose values they have (domains, and labels of enums, which are texts).
pub fn definition(
    relation: &Relation<'_>,
    key: &[String],
    types: &HashMap<u32, u32>,
    shown: &HashMap<String, (String, bool)>,
) -> Json {
    let columns: Vec<Json> = relation
        .columns
        .iter()
        .map(|column| {
            let name = String::from_utf8_lossy(column.name);
            let (shown, nullable) = shown.get(&*name).map_or(("", true), |(text, null)| (text, *null));
            let base = types.get(&column.type_id).copied().unwrap_or(column.type_id);
            let mut found = super::types::column(&name, base, column.modifier, nullable, shown);
            found["pg_type"] = base.into();
            found["identity"] = column.is_key.into();
            found
        })
        .collect();
    json!({"key": key, "columns": columns})
}
