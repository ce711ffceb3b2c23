//! Messages of Debezium's topics become records of the format `rows` (`typed_rows`).
//!
//! Each partition of a topic is a series of transactions, `TOPIC:PARTITION`, and the number of a transaction
//! is the offset after its last message. So the executed transactions say which messages the log has. A
//! series of its own has what belongs to no partition: definitions of tables, and records of the whole state.
//! Definitions come from the messages: a table that is new, or has other fields, is defined by a statement
//! before its rows.
//!
//! The log also has what the translator must know after a restart, as notes that readers skip: each
//! transaction has the state of its partition, each statement that of its table, and the first transaction of
//! a segment all of it.

pub mod avro;
pub mod avro_connect;
pub mod avro_type;
pub mod connect;
pub mod content;
pub mod json;
pub mod message;
pub mod moments;
pub mod order;
pub mod placeholder;
pub mod rows;
pub mod state;
pub mod table;
pub mod tombstone;
pub mod value;

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::typed_rows::write::Records;
use avro::{Registered, Translated};
use content::Content;

use message::{Change, Event, Operation, Options, Schemas};
use order::{Position, SeenByOrigin};
use rows::Transaction;
use state::{Partition, State};
use table::{evolved, Age, Table};
use value::Refused;

/// A transaction is ended when it has so many bytes. A plan of a pipeline ends between transactions.
const TRANSACTION_BYTES: usize = 1 << 20;
/// The series of what belongs to no partition.
const OWN_SERIES: &str = "log";

/// A message as the consumer gets it.
pub struct Message<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: u64,
    pub timestamp_ms: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
}

/// A message that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub topic: String,
    pub partition: i32,
    pub offset: u64,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub rows: u64,
    /// Messages without a change of a row.
    pub empty: u64,
    /// Messages that were sent again.
    pub repeated: u64,
    pub skipped: u64,
}

pub struct Translator {
    options: Options,
    schemas: Schemas,
    registered: Registered,
    state: State,
    /// Topics with more than one partition.
    wide: HashSet<String>,
    open: Option<Transaction>,
    /// Ids of tables in the records, by name. A table keeps its id, so that readers know its definition
    /// again.
    ids: HashMap<String, u32>,
    out: Records,
    pub counts: Counts,
}

impl Translator {
    pub fn new(options: Options, state: State) -> Self {
        Self {
            options,
            schemas: Schemas::default(),
            registered: Registered::default(),
            state,
            wide: HashSet::new(),
            open: None,
            ids: HashMap::new(),
            out: Records::default(),
            counts: Counts::default(),
        }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The topic has several partitions, so its messages have no order among each other.
    pub fn set_wide(&mut self, topic: &str) {
        self.wide.insert(topic.to_owned());
    }

    /// The ids of schemas in Avro that these keys and values name, and that are not known yet.
    pub fn unknown_schemas<'a>(&self, messages: impl Iterator<Item = Message<'a>>) -> BTreeSet<u32> {
        messages
            .flat_map(|message| [message.key, message.value])
            .filter_map(|bytes| avro::schema_id(bytes?))
            .filter(|id| !self.registered.has(*id))
            .collect()
    }

    /// Takes a schema of the registry, in Avro.
    pub fn add_schema(&mut self, id: u32, text: &str) -> Result<(), Refused> {
        self.registered.add(id, text)
    }

    /// Takes messages, whose partitions come one after the other. Returns records, and the messages that
    /// cannot be read. If those are not skipped, it ends before the first of them.
    pub fn translate<'a>(&mut self, messages: impl Iterator<Item = Message<'a>>) -> (Vec<u8>, Vec<Fault>) {
        let mut faults = Vec::new();
        for message in messages {
            let place = self.place_of(message.topic, message.partition);
            if self.open.as_ref().is_some_and(|open| open.partition != place) {
                self.end_transaction();
            }
            if message.offset < self.state.partitions[place].next {
                continue;
            }
            if let Err(reason) = self.message(place, &message) {
                faults.push(Fault {
                    topic: message.topic.to_owned(),
                    partition: message.partition,
                    offset: message.offset,
                    reason: reason.into_owned(),
                });
                if !self.options.skips {
                    break;
                }
                self.counts.skipped += 1;
                self.passed(place, message.offset, message.timestamp_ms);
            }
            if self.open.as_ref().is_some_and(|open| open.bytes() >= TRANSACTION_BYTES) {
                self.end_transaction();
            }
        }
        self.end_transaction();
        (std::mem::take(&mut self.out.bytes), faults)
    }

    /// The records of a transaction that says that the partition has no more messages before `next`.
    pub fn advance(&mut self, topic: &str, partition: i32, next: u64, timestamp_ms: i64) -> Vec<u8> {
        let place = self.place_of(topic, partition);
        if self.state.partitions[place].next < next {
            self.passed(place, next - 1, timestamp_ms);
            self.end_transaction();
        }
        std::mem::take(&mut self.out.bytes)
    }

    /// The records of a transaction with the whole state.
    pub fn checkpoint(&mut self, timestamp_ms: i64) -> Vec<u8> {
        self.state.number += 1;
        self.begin(timestamp_ms, OWN_SERIES, self.state.number);
        self.out.note(0, &state::whole(&self.state));
        self.out.commit(0);
        std::mem::take(&mut self.out.bytes)
    }

    fn place_of(&mut self, topic: &str, partition: i32) -> usize {
        let known = |one: &Partition| one.partition == partition && one.topic == topic;
        if let Some(place) = self.open.as_ref().map(|open| open.partition) {
            if known(&self.state.partitions[place]) {
                return place;
            }
        }
        if let Some(place) = self.state.partitions.iter().position(known) {
            return place;
        }
        let seen = SeenByOrigin::new();
        self.state.partitions.push(Partition {
            topic: topic.to_owned(),
            partition,
            next: 0,
            seen,
            ..Partition::default()
        });
        self.state.partitions.len() - 1
    }

    fn message(&mut self, place: usize, message: &Message<'_>) -> Result<(), Refused> {
        let in_avro = (self.registered.translated(message.key)?, self.registered.translated(message.value)?);
        let (key, value) = (content(message.key, &in_avro.0), content(message.value, &in_avro.1));
        let event = message::read(key, value, message.topic, &self.options, &mut self.schemas)?;
        let Event::Change(change) = event else {
            if matches!(event, Event::Tombstone) {
                self.tombstone(place, message, key)?;
            }
            self.counts.empty += 1;
            self.passed(place, message.offset, message.timestamp_ms);
            return Ok(());
        };
        let partition = &mut self.state.partitions[place];
        if change.operation == Operation::Delete {
            partition.deleted = Some(change.key_hash);
        } else if partition.deleted == Some(change.key_hash) {
            partition.deleted = None;
        }
        if change.operation != Operation::Truncate {
            partition.note_table(&change);
        }
        let timestamp = if change.commit_ms > 0 { change.commit_ms } else { message.timestamp_ms };
        if change.operation == Operation::Truncate {
            return self.truncate(place, message, &change, timestamp);
        }
        let seen = &self.state.partitions[place].seen;
        let log = change.position.log(&change.origin, &change.connector);
        let mut noted = None;
        if !change.snapshot {
            // The event counts as seen only if its row is written.
            let mut after =
                seen.get(&*log).map(|one| (log.clone().into_owned(), one.clone())).into_iter().collect();
            let ties = change.connector != "oracle" && !change.key.is_empty();
            let key = ties.then_some(change.key_hash);
            if order::was_seen(&mut after, &log, &change.position, change.hash, key) {
                self.counts.repeated += 1;
                self.passed(place, message.offset, timestamp);
                return Ok(());
            }
            noted = after.pop_first();
        }
        let name = self.define(&change, message.topic, timestamp)?;
        let table = &self.state.tables[&name];
        let begins = self.open.is_none();
        let open = self.open.get_or_insert_with(|| Transaction::new(place));
        open.place = message.offset;
        if let Err(reason) = open.add(id_of(&mut self.ids, &name), table, &change) {
            if begins {
                self.open = None; // it would be empty, and have the number of the one before
            }
            return Err(reason);
        }
        self.counts.rows += 1;
        if let Some((origin, one)) = noted {
            order::note(&mut self.state.partitions[place].seen, origin, one);
        }
        self.passed(place, message.offset, timestamp);
        Ok(())
    }

    /// Makes the table fit the change, by a statement if needed, and returns its name.
    fn define(&mut self, change: &Change<'_>, topic: &str, timestamp: i64) -> Result<String, Refused> {
        let name = format!("{}.{}", change.database, change.table);
        let Some(known) = self.state.tables.get(&name) else {
            let table = Table::new(change)?;
            let created = table.created();
            self.statement(name.clone(), table, &created, timestamp);
            return Ok(name);
        };
        if (&known.database, &known.table) != (&change.database, &change.table) {
            return Err(
                format!("there are two tables with the name {name}: `source.table` can give others").into()
            );
        }
        if known.origin != change.origin {
            return Err(format!(
                "table {name} has its rows from {}, and this is from {}: `source.table` can give them \
                 different names",
                known.origin, change.origin
            )
            .into());
        }
        if known.fits(change) {
            return Ok(name);
        }
        if change.operation == Operation::Delete && !change.described {
            return Ok(name); // it may have the key alone
        }
        let age = age(&known.position, change, self.wide.contains(topic));
        let mut after = evolved(known, &change.fields, &change.key, age)?;
        if age == Age::Newer {
            after.position = change.position.clone();
        }
        match known.altered(&after) {
            Some(altered) => self.statement(name.clone(), after, &altered, timestamp),
            None if age == Age::Newer => drop(self.state.tables.insert(name.clone(), after)),
            None => {}
        }
        Ok(name)
    }

    fn begin(&mut self, timestamp: i64, series: &str, number: u64) {
        self.out.begin(number, timestamp.saturating_mul(1000), &format!("{series}-{number}"));
    }

    fn statement(&mut self, name: String, table: Table, statement: &serde_json::Value, timestamp: i64) {
        self.end_transaction();
        self.state.number += 1;
        self.begin(timestamp, OWN_SERIES, self.state.number);
        self.out.note(0, &state::of_table(&name, &table, self.state.number));
        self.out.statement(0, &table.database, &statement.to_string());
        self.out.commit(0);
        self.state.tables.insert(name, table);
    }

    fn truncate(
        &mut self,
        place: usize,
        message: &Message<'_>,
        change: &Change<'_>,
        timestamp: i64,
    ) -> Result<(), Refused> {
        if self.wide.contains(message.topic) {
            return Err("it truncates a table whose topic has several partitions: which rows of the others \
                        it deletes is not known"
                .into());
        }
        self.end_transaction();
        let known = self.state.tables.get(&format!("{}.{}", change.database, change.table)).cloned();
        let Some(table) = known else {
            self.passed(place, message.offset, timestamp);
            return Ok(());
        };
        let partition = &mut self.state.partitions[place];
        let key = Some(crc32fast::hash(change.table.as_bytes()));
        let log = change.position.log(&change.origin, &change.connector);
        if order::was_seen(&mut partition.seen, &log, &change.position, change.hash, key) {
            self.counts.repeated += 1;
            self.passed(place, message.offset, timestamp);
            return Ok(());
        }
        partition.next = message.offset + 1;
        let (series, next, note) = (partition.series(), partition.next, state::of_partition(partition));
        self.begin(timestamp, &series, next);
        self.out.note(next, &note);
        self.out.statement(next, &table.database, &table.emptied().to_string());
        self.out.commit(next);
        Ok(())
    }

    /// A tombstone follows the deletion of its row, and says nothing else then. If compaction has removed
    /// that message, it alone says that the row is gone.
    fn tombstone(
        &mut self,
        place: usize,
        message: &Message<'_>,
        key: Option<Content<'_>>,
    ) -> Result<(), Refused> {
        let partition = &self.state.partitions[place];
        let is_known = partition.deleted == Some(message::hash_of_key(key));
        let Some(table) = partition.table.as_ref().filter(|_| !is_known) else { return Ok(()) };
        let Some(known) = self.state.tables.get(table) else { return Ok(()) };
        let Some(change) = tombstone::deletion(key, known, &self.options, &mut self.schemas)? else {
            return Ok(());
        };
        let open = self.open.get_or_insert_with(|| Transaction::new(place));
        open.place = message.offset;
        open.add(id_of(&mut self.ids, table), known, &change)?;
        self.counts.rows += 1;
        let partition = &mut self.state.partitions[place];
        partition.deleted = Some(change.key_hash);
        // Its position is not known. An event of this row that is sent again must count.
        partition.seen.clear();
        Ok(())
    }

    /// The open transaction goes up to this message.
    fn passed(&mut self, place: usize, offset: u64, timestamp: i64) {
        self.state.partitions[place].next = offset + 1;
        self.open.get_or_insert_with(|| Transaction::new(place)).timestamp = timestamp;
    }

    fn end_transaction(&mut self) {
        let Some(open) = self.open.take() else { return };
        let partition = &self.state.partitions[open.partition];
        let timestamp = open.timestamp;
        let (series, next, note) = (partition.series(), partition.next, state::of_partition(partition));
        self.begin(timestamp, &series, next);
        self.out.note(next, &note);
        self.out.bytes.extend_from_slice(&open.finish());
        self.out.commit(next);
    }
}

fn content<'a>(plain: Option<&'a [u8]>, in_avro: &'a Option<Translated>) -> Option<Content<'a>> {
    match in_avro {
        Some(found) => Some(Content::Described { payload: &found.payload, schema: &found.schema }),
        None => plain.map(Content::Plain),
    }
}

fn id_of(ids: &mut HashMap<String, u32>, name: &str) -> u32 {
    match ids.get(name) {
        Some(id) => *id,
        None => {
            let id = ids.len() as u32 + 1;
            ids.insert(name.to_owned(), id);
            id
        }
    }
}

/// Whether a definition is newer than the one that the table has. `known`: where that one was seen first.
fn age(known: &Position, change: &Change<'_>, wide: bool) -> Age {
    let found = &change.position;
    if known.place.is_some() && found.place.is_some() && known.scope == found.scope {
        return if found.is_before(known) { Age::Older } else { Age::Newer };
    }
    let is_later = found.commit_ms > known.commit_ms || (!wide && !change.snapshot);
    if is_later {
        Age::Newer
    } else {
        Age::Unknown
    }
}
