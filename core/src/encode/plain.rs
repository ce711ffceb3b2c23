//! Plain JSON: one object a change, with the row before and after it.

use serde::Deserialize;

use super::columns::{Column, Table};
use super::format::{Change, EventFacts, Format};
use super::image::Image;
use super::json_form::{write_fields, write_value, Form, Tools};
use super::json_numbers::write_numeric;
use super::json_text::{quoted, write_utf8};
use super::messages::{About, Messages};
use super::source_info::SourceInfo;
use crate::decimal::DecimalImage;
use crate::digits::write_u64;
use crate::error::Result;
use crate::rows::RowsKind;
use crate::rows::Taken;
use crate::transaction::Transaction;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decimals {
    /// As text, because most readers of JSON would round a number.
    #[default]
    String,
    Number,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub decimal: Decimals,
}

pub struct PlainForm {
    pub decimal: Decimals,
}

impl Form for PlainForm {
    fn decimal(&self, _: &Column, image: DecimalImage<'_>, out: &mut Vec<u8>) -> Taken {
        let quote = self.decimal == Decimals::String;
        if quote {
            out.push(b'"');
        }
        image.write_text(out)?;
        if quote {
            out.push(b'"');
        }
        Ok(())
    }

    fn numeric(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) -> Taken {
        match self.decimal {
            Decimals::String => write_utf8(text, out),
            Decimals::Number => write_numeric(text, out)?,
        }
        Ok(())
    }
}

pub struct Plain {
    form: PlainForm,
    info: &'static SourceInfo,
    tools: Tools,
    /// What is before the row, and behind it up to the sequence.
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Plain {
    pub fn new(options: Options, info: &'static SourceInfo) -> Self {
        let form = PlainForm { decimal: options.decimal };
        Self { form, info, tools: Tools::default(), head: Vec::new(), tail: Vec::new() }
    }
}

/// Appends the row before a change, then `,"after":` and the row after it, each as an object or null.
pub fn write_images<F: Form>(
    form: &F,
    table: &Table,
    change: &Change<'_>,
    tools: &mut Tools,
    out: &mut Vec<u8>,
) -> Result<()> {
    for (count, image) in [change.before(), change.after()].into_iter().enumerate() {
        if count > 0 {
            out.extend_from_slice(b",\"after\":");
        }
        match image {
            Some(image) => {
                out.push(b'{');
                write_fields(form, table, &image, tools, out)?;
                out.push(b'}');
            }
            None => out.extend_from_slice(b"null"),
        }
    }
    Ok(())
}

/// `{"key column":value,…}` of an image; nothing for a table without a key.
pub fn write_key<F: Form>(
    form: &F,
    table: &Table,
    image: &Image<'_>,
    tools: &mut Tools,
    out: &mut Vec<u8>,
) -> Result<()> {
    if table.key.is_empty() {
        return Ok(());
    }
    out.push(b'{');
    for (count, index) in table.key.iter().enumerate() {
        if count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&table.columns[*index].head);
        write_value(form, table, *index, image, tools, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// What happened to the row: Debezium's letters.
pub fn letter(facts: &EventFacts<'_>) -> &'static str {
    match facts.kind {
        _ if facts.snapshot.is_some() => "r",
        RowsKind::Insert => "c",
        RowsKind::Update => "u",
        RowsKind::Delete => "d",
    }
}

impl Format for Plain {
    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()> {
        self.tools.style = facts.style;
        let (database, name) = (quoted(&table.database), quoted(&table.name));
        let head =
            format!("{{\"database\":{database},\"table\":{name},\"op\":\"{}\",\"before\":", letter(facts));
        self.head = head.into_bytes();
        let place = self.info.plain_fields(&facts.source(transaction, table));
        let tail = format!(",\"ts_us\":{}{place},\"sequence\":", transaction.commit_us);
        self.tail = tail.into_bytes();
        Ok(())
    }

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()> {
        let start = out.start();
        let bytes = &mut out.bytes;
        bytes.extend_from_slice(&self.head);
        write_images(&self.form, table, change, &mut self.tools, bytes)?;
        bytes.extend_from_slice(&self.tail);
        write_u64(change.sequence, bytes);
        bytes.push(b'}');
        let middle = bytes.len();
        write_key(&self.form, table, &change.newest(), &mut self.tools, bytes)?;
        out.finish(About::Table(table.number), start, middle, change.sequence);
        Ok(())
    }

    fn needs_whole_images(&self) -> bool {
        false
    }
}
