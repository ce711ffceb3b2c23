//! Debezium's change events as its JSON converter writes them: envelope and key, with and without schemas,
//! tombstones, and the transaction topic's messages.
//!
//! The modes have the names that Debezium's documentation gives them. Values are Debezium's, but for those
//! that it gets wrong (docs/formats.md).

use std::collections::HashMap;
use std::sync::Arc;

use super::columns::Table;
use super::debezium_change::each_event;
use super::debezium_form::DebeziumForm;
use super::debezium_options::Options;
use super::debezium_schema as schema;
use super::format::{Change, EventFacts, Format};
use super::image::Image;
use super::json_form::{write_fields, Tools};
use super::json_text::quoted;
use super::messages::{About, Messages};
use super::source_info::{AroundRow, Source, SourceInfo};
use super::transaction_order::TransactionOrder;
use crate::digits::write_u64;
use crate::error::Result;
use crate::transaction::Transaction;

/// What is the same for all messages of a table's definition.
struct Schemas {
    of: Arc<crate::schema::TableSchema>,
    key: Vec<u8>,
    value: Vec<u8>,
}

pub struct Debezium {
    form: DebeziumForm,
    info: &'static SourceInfo,
    tools: Tools,
    name: String,
    /// Connect's schemas, by the number of the table.
    schemas: HashMap<u32, Schemas>,
    /// From `"source"` to the row's number, and behind it to the operation.
    source: Vec<u8>,
    has_row: bool,
    behind_row: Vec<u8>,
    /// Behind the operation.
    times: Vec<u8>,
    transaction_id: Vec<u8>,
    order: TransactionOrder,
    /// Rows of a snapshot have no transaction.
    of_snapshot: bool,
}

impl Debezium {
    pub fn new(options: Options, info: &'static SourceInfo) -> Self {
        Self {
            name: quoted(&options.topic_prefix),
            form: DebeziumForm::new(options),
            info,
            tools: Tools::default(),
            schemas: HashMap::new(),
            source: Vec::new(),
            has_row: false,
            behind_row: Vec::new(),
            times: Vec::new(),
            transaction_id: Vec::new(),
            order: TransactionOrder::default(),
            of_snapshot: false,
        }
    }

    fn options(&self) -> &Options {
        &self.form.options
    }

    fn prepare_schemas(&mut self, table: &Table) {
        let known = self.schemas.get(&table.number);
        if known.is_some_and(|known| Arc::ptr_eq(&known.of, &table.schema)) {
            return;
        }
        let key = format!("{{\"schema\":{},\"payload\":", schema::key(self.options(), table)).into_bytes();
        let value = format!("{{\"schema\":{},\"payload\":", schema::value(self.options(), table, self.info))
            .into_bytes();
        self.schemas.insert(table.number, Schemas { of: table.schema.clone(), key, value });
    }

    fn write_value(
        &mut self,
        table: &Table,
        change: &Change<'_>,
        (before, after): (Option<Image<'_>>, Option<Image<'_>>),
        operation: u8,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let schemas = self.form.options.schemas;
        if let (true, Some(known)) = (schemas, self.schemas.get(&table.number)) {
            out.extend_from_slice(&known.value);
        }
        out.extend_from_slice(b"{\"before\":");
        write_image(&self.form, table, before, &mut self.tools, out)?;
        out.extend_from_slice(b",\"after\":");
        write_image(&self.form, table, after, &mut self.tools, out)?;
        out.extend_from_slice(&self.source);
        if self.has_row {
            write_u64(change.number.into(), out);
        }
        out.extend_from_slice(&self.behind_row);
        self.write_order(out);
        out.extend_from_slice(b",\"op\":\"");
        out.push(operation);
        out.extend_from_slice(&self.times);
        if schemas {
            out.push(b'}');
        }
        Ok(())
    }

    /// The message's place in its transaction.
    fn write_order(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"transaction\":");
        if !self.form.options.provide_transaction_metadata || self.of_snapshot {
            out.extend_from_slice(b"null");
            return;
        }
        let (total, of_table) = self.order.count();
        out.extend_from_slice(b"{\"id\":");
        out.extend_from_slice(&self.transaction_id);
        out.extend_from_slice(b",\"total_order\":");
        write_u64(total, out);
        out.extend_from_slice(b",\"data_collection_order\":");
        write_u64(of_table, out);
        out.push(b'}');
    }

    fn write_key(&mut self, table: &Table, image: &Image<'_>, out: &mut Vec<u8>) -> Result<()> {
        if table.key.is_empty() {
            return Ok(());
        }
        let schemas = self.form.options.schemas;
        if let (true, Some(known)) = (schemas, self.schemas.get(&table.number)) {
            out.extend_from_slice(&known.key);
        }
        super::plain::write_key(&self.form, table, image, &mut self.tools, out)?;
        if schemas {
            out.push(b'}');
        }
        Ok(())
    }

    fn message(
        &mut self,
        table: &Table,
        change: &Change<'_>,
        images: (Option<Image<'_>>, Option<Image<'_>>),
        operation: u8,
        out: &mut Messages,
    ) -> Result<()> {
        let start = out.start();
        self.write_value(table, change, images, operation, &mut out.bytes)?;
        let middle = out.start();
        if let Some(image) = images.1.or(images.0) {
            self.write_key(table, &image, &mut out.bytes)?;
        }
        let about = About::Table(table.number);
        out.finish(about, start, middle, change.sequence);
        if operation == b'd' && self.options().tombstones_on_delete && out.start() > middle {
            let (key_end, tombstone) = (out.start(), out.start());
            out.bytes.extend_from_within(middle..key_end);
            out.finish(about, tombstone, tombstone, change.sequence);
        }
        Ok(())
    }

    /// Transaction BEGIN and END of the transaction topic.
    fn boundary(&mut self, transaction: &Transaction, status: &str, out: &mut Messages) {
        let start = out.start();
        let id = String::from_utf8_lossy(&self.transaction_id).into_owned();
        let (mut count, mut collections) = ("null".to_owned(), "null".to_owned());
        if status == "END" {
            count = self.order.total.to_string();
            let counted: Vec<String> = self
                .order
                .counts
                .iter()
                .map(|(name, count)| {
                    format!("{{\"data_collection\":{},\"event_count\":{count}}}", quoted(name))
                })
                .collect();
            collections = format!("[{}]", counted.join(","));
        }
        let ts_ms = transaction.commit_us / 1000;
        let payload = format!(
            "{{\"status\":\"{status}\",\"id\":{id},\"event_count\":{count},\
             \"data_collections\":{collections},\"ts_ms\":{ts_ms}}}"
        );
        let key = format!("{{\"id\":{id}}}");
        let wrap = |schema: String, payload: String| match self.options().schemas {
            true => format!("{{\"schema\":{schema},\"payload\":{payload}}}"),
            false => payload,
        };
        let (value, key) = (wrap(schema::transaction_value(), payload), wrap(schema::transaction_key(), key));
        out.bytes.extend_from_slice(value.as_bytes());
        let middle = out.start();
        out.bytes.extend_from_slice(key.as_bytes());
        out.finish(About::Transaction, start, middle, transaction.end);
    }
}

fn write_image(
    form: &DebeziumForm,
    table: &Table,
    image: Option<Image<'_>>,
    tools: &mut Tools,
    out: &mut Vec<u8>,
) -> Result<()> {
    match image {
        Some(image) => {
            out.push(b'{');
            write_fields(form, table, &image, tools, out)?;
            out.push(b'}');
        }
        None => out.extend_from_slice(b"null"),
    }
    Ok(())
}

/// The `source` block around the row's number. `prefix`: the topics', quoted.
pub fn source_block(
    info: &SourceInfo,
    source: &Source<'_>,
    prefix: &str,
    (micros, snapshot): (u64, Option<&str>),
) -> AroundRow {
    let mut head = format!(
        "{{\"version\":\"{}\",\"connector\":\"{}\",\"name\":{prefix},\"ts_ms\":{},\
         \"snapshot\":\"{}\",\"db\":{},\"sequence\":{},",
        env!("CARGO_PKG_VERSION"),
        info.connector,
        micros / 1000,
        snapshot.unwrap_or("false"),
        quoted(source.db()),
        (info.sequence)(source).map_or_else(|| "null".to_owned(), |sequence| quoted(&sequence)),
    )
    .into_bytes();
    write_times(&mut head, micros, "");
    let mut block = info.block(source);
    block.before.insert_str(0, &String::from_utf8_lossy(&head));
    block.behind.as_mut().unwrap_or(&mut block.before).push('}');
    block
}

/// Milli-, micro- and nanoseconds of a time in microseconds.
fn write_times(out: &mut Vec<u8>, micros: u64, tail: &str) {
    out.extend_from_slice(b"\"ts_us\":");
    write_u64(micros, out);
    out.extend_from_slice(b",\"ts_ns\":");
    write_u64(micros.saturating_mul(1000), out);
    out.extend_from_slice(tail.as_bytes());
}

impl Format for Debezium {
    fn placeholder(&self) -> Option<&[u8]> {
        Some(self.options().unavailable_value_placeholder.as_bytes())
    }

    fn begin(&mut self, transaction: &Transaction, out: &mut Messages) -> Result<()> {
        self.order.begin(transaction, self.info);
        self.transaction_id = self.order.id_json().into_bytes();
        if self.options().provide_transaction_metadata {
            self.boundary(transaction, "BEGIN", out);
        }
        Ok(())
    }

    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()> {
        self.tools.style = facts.style;
        self.of_snapshot = facts.snapshot.is_some();
        if self.options().schemas {
            self.prepare_schemas(table);
        }
        if self.options().provide_transaction_metadata && !self.of_snapshot {
            self.order.event(table);
        }
        let micros = transaction.source_us(facts.timestamp);
        let query = facts.query.filter(|_| self.options().include_query);
        let source = Source { query, ..facts.source(transaction, table) };
        let AroundRow { before, behind } =
            source_block(self.info, &source, &self.name, (micros, facts.snapshot));
        self.source = [b",\"source\":", before.as_bytes()].concat();
        self.has_row = behind.is_some();
        self.behind_row = behind.unwrap_or_default().into_bytes();
        let mut times = format!("\",\"ts_ms\":{},", transaction.commit_us / 1000).into_bytes();
        write_times(&mut times, transaction.commit_us, "}");
        self.times = times;
        Ok(())
    }

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()> {
        each_event(table, change, self.of_snapshot, |images, operation| {
            self.message(table, change, images, operation, out)
        })
    }

    fn end(&mut self, transaction: &Transaction, out: &mut Messages) -> Result<()> {
        if self.options().provide_transaction_metadata {
            self.boundary(transaction, "END", out);
        }
        Ok(())
    }
}
