//! Debezium's change events in Avro and Protobuf, in Confluent's wire format: a zero byte, the id of the
//! schema, for Protobuf the number of the message in it, then the message.
//!
//! The schemas are those that Confluent's converters make of Debezium's (`avro_schema`, `protobuf_schema`).

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::binary::{prefixed, write_bytes, write_tag, Target, LENGTH, VARINT};
use super::binary_field::Field;
use super::binary_form::write_value;
use super::columns::Table;
use super::debezium_change::each_event;
use super::debezium_options::{Options, TimePrecision};
use super::debezium_schema as connect;
use super::format::{Change, EventFacts, Format};
use super::image::Image;
use super::json_form::Tools;
use super::messages::{About, Messages};
use super::schema_ids::{MessageSchema, SchemaIds};
use super::source_info::{Fact, Kind, Source, SourceInfo, Value};
use super::transaction_order::TransactionOrder;
use super::{avro_schema, protobuf_schema};
use crate::error::{DecodeError, Result};
use crate::schema::TableSchema;
use crate::transaction::Transaction;

/// What is the same for all messages of a table's definition.
struct Known {
    of: Arc<TableSchema>,
    /// What messages begin with: magic byte, id, and number of the message.
    key: Vec<u8>,
    value: Vec<u8>,
    fields: Vec<Field>,
    /// The fields of the key's columns, which have other numbers in the key.
    key_fields: Vec<Field>,
}

pub struct Binary<T> {
    options: Options,
    info: &'static SourceInfo,
    ids: Box<dyn SchemaIds>,
    schemas: Vec<(MessageSchema, u32)>,
    tables: HashMap<u32, Arc<Known>>,
    known: Option<Arc<Known>>,
    /// The schemas of the messages about transactions, key and value.
    boundaries: Option<(Vec<u8>, Vec<u8>)>,
    tools: Tools,
    order: TransactionOrder,
    of_snapshot: bool,
    /// The source block up to the row's number, and behind it.
    source: Vec<u8>,
    /// The number of the row's field, if the block has one.
    row: Option<usize>,
    behind_row: Vec<u8>,
    times: Vec<u8>,
    target: PhantomData<T>,
}

impl<T: Target> Binary<T> {
    pub fn new(
        options: Options,
        info: &'static SourceInfo,
        ids: Box<dyn SchemaIds>,
    ) -> std::result::Result<Self, String> {
        if options.schemas {
            return Err("`schemas` is an option of JSON; these messages have their schema's id".to_owned());
        }
        if T::PROTOBUF && options.time_precision_mode == TimePrecision::Connect {
            return Err("`time.precision.mode = connect` is not written in Protobuf".to_owned());
        }
        Ok(Self {
            options,
            info,
            ids,
            schemas: Vec::new(),
            tables: HashMap::new(),
            known: None,
            boundaries: None,
            tools: Tools::default(),
            order: TransactionOrder::default(),
            of_snapshot: false,
            source: Vec::new(),
            row: None,
            behind_row: Vec::new(),
            times: Vec::new(),
            target: PhantomData,
        })
    }

    /// What a message with this schema of Connect begins with.
    fn register(
        &mut self,
        connect: &str,
        table: Option<(String, String)>,
        is_key: bool,
    ) -> std::result::Result<Vec<u8>, Unusable> {
        let schema: serde_json::Value =
            serde_json::from_str(connect).map_err(|error| Unusable::Schema(error.to_string()))?;
        let text = match T::PROTOBUF {
            true => protobuf_schema::from_connect(&schema),
            false => avro_schema::from_connect(&schema),
        };
        let (namespace, name) = avro_schema::split_name(avro_schema::text(&schema, "name"));
        let wanted = MessageSchema {
            table,
            is_key,
            name: format!("{namespace}.{name}"),
            kind: T::NAME,
            text: text.map_err(Unusable::Schema)?,
        };
        let id = self.ids.id(&wanted).map_err(Unusable::Id)?;
        if !self.schemas.iter().any(|(known, _)| *known == wanted) {
            self.schemas.push((wanted, id));
        }
        let mut prefix = vec![0];
        prefix.extend_from_slice(&id.to_be_bytes());
        if T::PROTOBUF {
            prefix.push(0);
        }
        Ok(prefix)
    }

    fn prepare(&mut self, table: &Table) -> Result<()> {
        if let Some(known) = self.tables.get(&table.number) {
            if Arc::ptr_eq(&known.of, &table.schema) {
                self.known = Some(known.clone());
                return Ok(());
            }
        }
        let fail = |error: Unusable| match error {
            Unusable::Id(error) => error,
            Unusable::Schema(reason) => {
                let name = table.schema.name();
                DecodeError::of_table(name.clone(), format!("{name}: {reason}"), 0)
            }
        };
        let name = Some((table.database.clone(), table.name.clone()));
        let value = self
            .register(&connect::value(&self.options, table, self.info), name.clone(), false)
            .map_err(fail)?;
        let key = match table.key.is_empty() {
            true => Vec::new(),
            false => self.register(&connect::key(&self.options, table), name, true).map_err(fail)?,
        };
        let field =
            |position: usize, index: usize| Field::of::<T>(&self.options, &table.columns[index], position);
        let known = Arc::new(Known {
            of: table.schema.clone(),
            key,
            value,
            fields: (0..table.columns.len()).map(|index| field(index, index)).collect(),
            key_fields: table.key.iter().enumerate().map(|(at, index)| field(at, *index)).collect(),
        });
        self.tables.insert(table.number, known.clone());
        self.known = Some(known);
        Ok(())
    }

    fn write_row(
        &mut self,
        known: &Known,
        table: &Table,
        image: &Image<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        for (index, field) in known.fields.iter().enumerate() {
            write_value::<T>(&self.options, (table, field), index, image, &mut self.tools, out)?;
        }
        Ok(())
    }

    fn write_image(
        &mut self,
        known: &Known,
        table: &Table,
        (image, field): (Option<Image<'_>>, usize),
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match (image, T::PROTOBUF) {
            (None, true) => Ok(()),
            (None, false) => {
                out.push(0);
                Ok(())
            }
            (Some(image), true) => {
                write_tag(field, LENGTH, out);
                prefixed::<T, _>(out, |out| self.write_row(known, table, &image, out))
            }
            (Some(image), false) => {
                T::integer(1, out);
                self.write_row(known, table, &image, out)
            }
        }
    }

    /// The source block. Fields have the order of `debezium_schema`.
    fn write_source(&self, number: u32, out: &mut Vec<u8>) {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(&self.source);
            if let Some(field) = self.row {
                if T::PROTOBUF {
                    write_tag(field, VARINT, out);
                }
                T::integer(number.into(), out);
                out.extend_from_slice(&self.behind_row);
            }
            Ok::<(), ()>(())
        };
        if T::PROTOBUF {
            write_tag(3, LENGTH, out);
            // It cannot fail.
            let _ = prefixed::<T, ()>(out, write);
        } else {
            let _ = write(out);
        }
    }

    fn write_order(&mut self, out: &mut Vec<u8>) {
        if !self.options.provide_transaction_metadata || self.of_snapshot {
            if !T::PROTOBUF {
                out.push(0);
            }
            return;
        }
        let (total, of_table) = self.order.count();
        let mut block = Fields::<T>::new(out, Some(4));
        block.string(1, &self.order.id);
        block.integer(2, total as i64);
        block.integer(3, of_table as i64);
        block.end();
    }

    fn message(
        &mut self,
        table: &Table,
        change: &Change<'_>,
        images: (Option<Image<'_>>, Option<Image<'_>>),
        operation: u8,
        out: &mut Messages,
    ) -> Result<()> {
        let Some(known) = self.known.clone() else { return Ok(()) };
        let start = out.start();
        let bytes = &mut out.bytes;
        bytes.extend_from_slice(&known.value);
        self.write_image(&known, table, (images.0, 1), bytes)?;
        self.write_image(&known, table, (images.1, 2), bytes)?;
        self.write_source(change.number, bytes);
        self.write_order(bytes);
        if T::PROTOBUF {
            write_tag(5, LENGTH, bytes);
        }
        write_bytes::<T>(&[operation], bytes);
        bytes.extend_from_slice(&self.times);
        let middle = bytes.len();
        if let (Some(image), false) = (images.1.or(images.0), table.key.is_empty()) {
            bytes.extend_from_slice(&known.key);
            for (index, field) in table.key.iter().zip(&known.key_fields) {
                write_value::<T>(&self.options, (table, field), *index, &image, &mut self.tools, bytes)?;
            }
        }
        let about = About::Table(table.number);
        out.finish(about, start, middle, change.sequence);
        if operation == b'd' && self.options.tombstones_on_delete && out.start() > middle {
            let (key_end, tombstone) = (out.start(), out.start());
            out.bytes.extend_from_within(middle..key_end);
            out.finish(about, tombstone, tombstone, change.sequence);
        }
        Ok(())
    }

    /// Transaction BEGIN and END of the transaction topic.
    fn boundary(&mut self, transaction: &Transaction, is_end: bool, out: &mut Messages) -> Result<()> {
        if self.boundaries.is_none() {
            let fail = |error: Unusable| match error {
                Unusable::Id(error) => error,
                Unusable::Schema(reason) => DecodeError::new(reason, transaction.start),
            };
            let value = self.register(&connect::transaction_value(), None, false).map_err(fail)?;
            let key = self.register(&connect::transaction_key(), None, true).map_err(fail)?;
            self.boundaries = Some((value, key));
        }
        let Some((value, key)) = &self.boundaries else { return Ok(()) };
        let start = out.start();
        out.bytes.extend_from_slice(value);
        let mut fields = Fields::<T>::new(&mut out.bytes, None);
        fields.string(1, if is_end { "END" } else { "BEGIN" });
        fields.string(2, &self.order.id);
        fields.optional_integer(3, is_end.then_some(self.order.total as i64));
        fields.counts(4, is_end.then_some(&self.order.counts));
        fields.integer(5, (transaction.commit_us / 1000) as i64);
        let middle = out.start();
        out.bytes.extend_from_slice(key);
        Fields::<T>::new(&mut out.bytes, None).string(1, &self.order.id);
        out.finish(About::Transaction, start, middle, transaction.end);
        Ok(())
    }
}

enum Unusable {
    Schema(String),
    Id(DecodeError),
}

/// Writes the fields of a record of our own, in order.
struct Fields<'a, T> {
    out: &'a mut Vec<u8>,
    /// Protobuf: where the record begins, to put its length there.
    start: Option<usize>,
    target: PhantomData<T>,
}

impl<'a, T: Target> Fields<'a, T> {
    /// `nested`: the number of the field that has the record, and may be null. None: it is the message.
    fn new(out: &'a mut Vec<u8>, nested: Option<usize>) -> Self {
        let mut start = None;
        match (nested, T::PROTOBUF) {
            (Some(field), true) => {
                write_tag(field, LENGTH, out);
                start = Some(out.len());
            }
            (Some(_), false) => T::integer(1, out),
            (None, _) => {}
        }
        Self { out, start, target: PhantomData }
    }

    fn end(self) {
        if let Some(start) = self.start {
            let inside = self.out.split_off(start);
            write_bytes::<T>(&inside, self.out);
        }
    }

    fn tag(&mut self, field: usize, kind: u8) {
        if T::PROTOBUF {
            write_tag(field, kind, self.out);
        }
    }

    fn string(&mut self, field: usize, value: &str) {
        self.tag(field, LENGTH);
        write_bytes::<T>(value.as_bytes(), self.out);
    }

    fn integer(&mut self, field: usize, value: i64) {
        self.tag(field, VARINT);
        T::integer(value, self.out);
    }

    /// The branch of the union; whether there is a value.
    fn branch(&mut self, has_value: bool) -> bool {
        if !T::PROTOBUF {
            T::integer(has_value.into(), self.out);
        }
        has_value
    }

    fn optional_string(&mut self, field: usize, value: Option<&str>) {
        if self.branch(value.is_some()) {
            self.string(field, value.unwrap_or_default());
        }
    }

    fn optional_integer(&mut self, field: usize, value: Option<i64>) {
        if self.branch(value.is_some()) {
            self.integer(field, value.unwrap_or_default());
        }
    }

    fn value(&mut self, field: usize, kind: Kind, value: Value<'_>) {
        match (kind, value) {
            (Kind::Text, Value::Text(text)) => self.string(field, text),
            (Kind::Text, _) => self.string(field, ""),
            (Kind::OptionalText, Value::Text(text)) => self.optional_string(field, Some(text)),
            (Kind::OptionalText, _) => self.optional_string(field, None),
            (Kind::OptionalInteger, Value::Integer(number)) => self.optional_integer(field, Some(number)),
            (Kind::OptionalInteger, _) => self.optional_integer(field, None),
            (Kind::Integer | Kind::Short, Value::Integer(number)) => self.integer(field, number),
            (Kind::Integer | Kind::Short, _) => self.integer(field, 0),
        }
    }

    /// Tables and their numbers of changes.
    fn counts(&mut self, field: usize, counts: Option<&Vec<(String, u64)>>) {
        if !self.branch(counts.is_some()) {
            return;
        }
        let counts = counts.map_or(&[][..], Vec::as_slice);
        if !T::PROTOBUF && !counts.is_empty() {
            T::length(counts.len(), self.out);
        }
        for (name, count) in counts {
            self.tag(field, LENGTH);
            let start = T::PROTOBUF.then_some(self.out.len());
            let mut item = Fields::<T> { out: self.out, start, target: PhantomData };
            item.string(1, name);
            item.integer(2, *count as i64);
            item.end();
        }
        if !T::PROTOBUF {
            T::length(0, self.out);
        }
    }
}

impl<T: Target> Format for Binary<T> {
    fn placeholder(&self) -> Option<&[u8]> {
        Some(self.options.unavailable_value_placeholder.as_bytes())
    }

    fn begin(&mut self, transaction: &Transaction, out: &mut Messages) -> Result<()> {
        self.order.begin(transaction, self.info);
        if self.options.provide_transaction_metadata {
            self.boundary(transaction, false, out)?;
        }
        Ok(())
    }

    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()> {
        self.tools.style = facts.style;
        self.of_snapshot = facts.snapshot.is_some();
        self.prepare(table)?;
        if self.options.provide_transaction_metadata && !self.of_snapshot {
            self.order.event(table);
        }
        let micros = transaction.source_us(facts.timestamp) as i64;
        let query = facts.query.filter(|_| self.options.include_query);
        let from = Source { query, ..facts.source(transaction, table) };
        self.source.clear();
        let mut source = Fields::<T>::new(&mut self.source, None);
        source.string(1, env!("CARGO_PKG_VERSION"));
        source.string(2, self.info.connector);
        source.string(3, &self.options.topic_prefix);
        source.integer(4, micros / 1000);
        // Its default is the first branch of the union.
        if !T::PROTOBUF {
            T::integer(0, source.out);
        }
        source.string(5, facts.snapshot.unwrap_or("false"));
        source.string(6, from.db());
        source.optional_string(7, (self.info.sequence)(&from).as_deref());
        source.optional_integer(8, Some(micros));
        source.optional_integer(9, Some(micros.saturating_mul(1000)));
        self.behind_row.clear();
        self.row = None;
        for (number, field) in (10..).zip(self.info.fields) {
            match field.fact {
                Fact::Row => {
                    self.row = Some(number);
                    source = Fields::<T>::new(&mut self.behind_row, None);
                }
                fact => source.value(number, field.kind, from.value(fact)),
            }
        }
        self.times.clear();
        let commit = transaction.commit_us as i64;
        let mut times = Fields::<T>::new(&mut self.times, None);
        times.optional_integer(6, Some(commit / 1000));
        times.optional_integer(7, Some(commit));
        times.optional_integer(8, Some(commit.saturating_mul(1000)));
        Ok(())
    }

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()> {
        each_event(table, change, self.of_snapshot, |images, operation| {
            self.message(table, change, images, operation, out)
        })
    }

    fn end(&mut self, transaction: &Transaction, out: &mut Messages) -> Result<()> {
        if self.options.provide_transaction_metadata {
            self.boundary(transaction, true, out)?;
        }
        Ok(())
    }

    fn schemas(&self) -> &[(MessageSchema, u32)] {
        &self.schemas
    }
}
