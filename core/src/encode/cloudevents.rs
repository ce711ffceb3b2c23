//! CloudEvents 1.0, structured mode, with Debezium's attributes: its converter's `iodebezium…` extensions,
//! and its envelope without source as `data`.

use super::columns::Table;
use super::debezium_form::DebeziumForm;
use super::debezium_options::Options;
use super::format::{Change, EventFacts, Format};
use super::json_form::Tools;
use super::json_text::quoted;
use super::messages::{About, Messages};
use super::plain::{letter, write_images, write_key};
use super::source_info::{Fact, Source, SourceInfo, Value};
use crate::digits::write_u64;
use crate::error::Result;
use crate::temporal::DateTime;
use crate::transaction::Transaction;

pub struct CloudEvents {
    options: Options,
    info: &'static SourceInfo,
    form: DebeziumForm,
    tools: Tools,
    /// Before the row's number in the id, and behind it up to the images.
    head: Vec<u8>,
    middle: Vec<u8>,
}

impl CloudEvents {
    pub fn new(options: Options, info: &'static SourceInfo) -> Self {
        Self {
            form: DebeziumForm::new(options.clone()),
            options,
            info,
            tools: Tools::default(),
            head: Vec::new(),
            middle: Vec::new(),
        }
    }
}

impl Format for CloudEvents {
    fn placeholder(&self) -> Option<&[u8]> {
        Some(self.options.unavailable_value_placeholder.as_bytes())
    }

    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()> {
        self.tools.style = facts.style;
        let prefix = &self.options.topic_prefix;
        let name = |text: String| quoted(&text);
        let (info, source) = (self.info, facts.source(transaction, table));
        let connector = info.connector;
        // Its place makes the id: the same change has the same one, whoever reads it.
        let id = quoted(&info.event_id(prefix, &source));
        self.head = format!("{{\"id\":{}", id.strip_suffix('"').unwrap_or(&id)).into_bytes();
        let mut time = Vec::new();
        let micros = transaction.commit_us;
        DateTime::from_timestamp((micros / 1_000_000).max(1), (micros % 1_000_000) as u32)
            .write_text(6, &mut time);
        if let Some(between) = time.get_mut(10) {
            *between = b'T';
        }
        self.middle = format!(
            "\",\"source\":{},\"specversion\":\"1.0\",\
             \"type\":\"io.debezium.connector.{connector}.DataChangeEvent\",\
             \"time\":\"{}Z\",\"datacontenttype\":\"application/json\",\"iodebeziumop\":\"{}\",\
             \"iodebeziumversion\":\"{}\",\"iodebeziumconnector\":\"{connector}\",\"iodebeziumname\":{},\
             \"iodebeziumtsms\":\"{}\",\"iodebeziumsnapshot\":\"{}\",\"iodebeziumdb\":{}{},\
             \"data\":{{\"before\":",
            name(format!("/debezium/{connector}/{prefix}")),
            String::from_utf8_lossy(&time),
            letter(facts),
            env!("CARGO_PKG_VERSION"),
            quoted(prefix),
            transaction.source_us(facts.timestamp) / 1000,
            facts.snapshot.unwrap_or("false"),
            quoted(source.db()),
            attributes(info, &source),
        )
        .into_bytes();
        Ok(())
    }

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()> {
        let start = out.start();
        let bytes = &mut out.bytes;
        bytes.extend_from_slice(&self.head);
        if self.info.event_id_has_row() {
            write_u64(change.number.into(), bytes);
        }
        bytes.extend_from_slice(&self.middle);
        write_images(&self.form, table, change, &mut self.tools, bytes)?;
        bytes.extend_from_slice(b"}}");
        let middle = bytes.len();
        write_key(&self.form, table, &change.newest(), &mut self.tools, bytes)?;
        out.finish(About::Table(table.number), start, middle, change.sequence);
        Ok(())
    }
}

/// The attributes that the fields of the `source` block become, each with a comma before it.
fn attributes(info: &SourceInfo, source: &Source<'_>) -> String {
    let fields = info.fields.iter().filter(|one| !matches!(one.fact, Fact::Row | Fact::Thread | Fact::Query));
    let attributes = fields.map(|one| {
        let value = match source.value(one.fact) {
            Value::Integer(number) => quoted(&number.to_string()),
            other => other.json(),
        };
        format!(",\"iodebezium{}\":{value}", one.name.replace('_', "").to_lowercase())
    });
    attributes.collect()
}
