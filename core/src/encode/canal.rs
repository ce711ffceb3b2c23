//! Canal's flat messages: one a row event, with all its rows. Every value is a string.
//!
//! `faithful` repeats what Canal gets wrong: ordinals of ENUM, bits of SET, and in `old` the columns that any
//! earlier row of the event changed.

use serde::Deserialize;

use super::columns::{Column, Table};
use super::format::{Change, EventFacts, Format};
use super::image::{Image, Place};
use super::json_form::{write_label, write_set, write_value, Form, Tools};
use super::json_numbers::{show_double, show_float};
use super::json_text::{quoted, write_utf8};
use super::messages::{About, Messages};
use crate::decimal::DecimalImage;
use crate::digits::{write_i64, write_u64};
use crate::error::Result;
use crate::rows::RowsKind;
use crate::rows::Taken;
use crate::schema::ColumnType;
use crate::transaction::Transaction;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub faithful: bool,
    /// A message for each row, with a key, for consumers that spread rows over partitions.
    pub single_rows: bool,
}

struct CanalForm {
    faithful: bool,
}

fn in_quotes(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

/// Bytes as characters of ISO 8859-1, from which a consumer gets the same bytes.
fn write_latin1(value: &[u8], zeros: usize, out: &mut Vec<u8>) {
    let text: String =
        value.iter().map(|byte| char::from(*byte)).chain(std::iter::repeat_n('\0', zeros)).collect();
    write_utf8(text.as_bytes(), out);
}

impl Form for CanalForm {
    const LISTS: bool = false;

    fn int(&self, _: &Column, value: i64, out: &mut Vec<u8>) {
        in_quotes(out, |out| write_i64(value, out));
    }

    fn uint(&self, _: &Column, value: u64, out: &mut Vec<u8>) {
        in_quotes(out, |out| write_u64(value, out));
    }

    fn boolean(&self, _: &Column, value: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if value { b"\"1\"" } else { b"\"0\"" });
    }

    fn float(&self, _: &Column, value: f32, out: &mut Vec<u8>) {
        in_quotes(out, |out| show_float(value, out));
    }

    fn double(&self, _: &Column, value: f64, out: &mut Vec<u8>) {
        in_quotes(out, |out| show_double(value, out));
    }

    fn decimal(&self, _: &Column, image: DecimalImage<'_>, out: &mut Vec<u8>) -> Taken {
        out.push(b'"');
        image.write_text(out)?;
        out.push(b'"');
        Ok(())
    }

    fn binary(&self, _: &Column, value: &[u8], zeros: usize, out: &mut Vec<u8>) {
        write_latin1(value, zeros, out);
    }

    fn geometry(&self, _: &Column, value: &[u8], out: &mut Vec<u8>) -> Taken {
        write_latin1(value, 0, out);
        Ok(())
    }

    fn vector(&self, _: &Column, value: &[u8], out: &mut Vec<u8>) {
        write_latin1(value, 0, out);
    }

    fn bit(&self, column: &Column, value: u64, out: &mut Vec<u8>) {
        self.uint(column, value, out);
    }

    fn year(&self, column: &Column, value: u16, out: &mut Vec<u8>) {
        self.uint(column, value.into(), out);
    }

    fn enumeration(&self, column: &Column, ordinal: u64, out: &mut Vec<u8>) -> Taken {
        if self.faithful {
            self.uint(column, ordinal, out);
            return Ok(());
        }
        write_label(column, ordinal, out)
    }

    fn set(&self, column: &Column, bits: u64, out: &mut Vec<u8>) -> Taken {
        if self.faithful {
            self.uint(column, bits, out);
            return Ok(());
        }
        write_set(column, bits, out)
    }
}

/// The code in `java.sql.Types` that Canal gives a column. Of labels, it is that of their numbers, unless
/// they are written as texts.
pub fn sql_type(column: &Column, faithful: bool) -> i32 {
    match &column.kind {
        ColumnType::Enum { .. } | ColumnType::Set { .. } if !faithful => 12,
        ColumnType::Integer { width: 1, .. } => -6,
        ColumnType::Integer { width: 2, .. } => 5,
        ColumnType::Integer { width: 8, .. } => -5,
        ColumnType::Integer { .. } => 4,
        ColumnType::Decimal { .. } | ColumnType::Numeric => 3,
        ColumnType::Float => 7,
        ColumnType::Double => 8,
        ColumnType::Boolean | ColumnType::Bit { .. } => -7,
        ColumnType::Year { .. }
        | ColumnType::Json
        | ColumnType::Network(_)
        | ColumnType::Interval
        | ColumnType::List(_) => 12,
        ColumnType::Date => 91,
        ColumnType::Time { .. } => 92,
        ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => 93,
        ColumnType::Text { .. } => match column.schema.kind.as_str() {
            "char" => 1,
            "varchar" => 12,
            _ => 2005,
        },
        ColumnType::Binary { .. } | ColumnType::Vector | ColumnType::Geometry => 2004,
        ColumnType::Enum { .. } => 4,
        ColumnType::Set { .. } => -7,
    }
}

/// The type as the server prints it, put together where the catalog was not asked.
pub fn mysql_type(column: &Column) -> String {
    let schema = &column.schema;
    if !schema.column_type.is_empty() {
        return schema.column_type.clone();
    }
    let labels = |labels: &[String]| {
        let quoted: Vec<String> =
            labels.iter().map(|label| format!("'{}'", label.replace('\'', "''"))).collect();
        format!("{}({})", schema.kind, quoted.join(","))
    };
    let text = match &column.kind {
        ColumnType::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
        ColumnType::Bit { bits } => format!("bit({bits})"),
        ColumnType::Enum { labels: all, .. } | ColumnType::Set { labels: all, .. } => labels(all),
        ColumnType::DateTime { fsp: 1.. }
        | ColumnType::Timestamp { fsp: 1.. }
        | ColumnType::Time { fsp: 1.. } => {
            format!("{}({})", schema.kind, column.fsp)
        }
        _ => match (schema.kind.as_str(), schema.length) {
            ("char" | "varchar" | "binary" | "varbinary", Some(length)) => {
                format!("{}({length})", schema.kind)
            }
            _ => schema.kind.clone(),
        },
    };
    if schema.unsigned {
        format!("{text} unsigned")
    } else {
        text
    }
}

pub struct Canal {
    form: CanalForm,
    tools: Tools,
    single_rows: bool,
    /// From the end of `data` to the begin of `old`, and behind `old`.
    middle: Vec<u8>,
    tail: Vec<u8>,
    old: Vec<u8>,
    /// Faithful: the columns that a row of the event has changed.
    changed: Vec<bool>,
    start: usize,
    sequence: u64,
    /// What a table's definition says, by its number: types, key and codes.
    described: std::collections::HashMap<u32, Described>,
}

struct Described {
    of: std::sync::Arc<crate::schema::TableSchema>,
    mysql_type: String,
    key: String,
    sql_type: String,
}

impl Canal {
    pub fn new(options: Options) -> Self {
        Self {
            form: CanalForm { faithful: options.faithful },
            tools: Tools::default(),
            single_rows: options.single_rows,
            middle: Vec::new(),
            tail: Vec::new(),
            old: Vec::new(),
            changed: Vec::new(),
            start: usize::MAX,
            sequence: 0,
            described: std::collections::HashMap::new(),
        }
    }

    fn describe(&mut self, table: &Table) -> &Described {
        let known = self.described.get(&table.number);
        if !known.is_some_and(|known| std::sync::Arc::ptr_eq(&known.of, &table.schema)) {
            let faithful = self.form.faithful;
            let each = |of: &dyn Fn(&Column) -> String| {
                let all: Vec<String> = table
                    .columns
                    .iter()
                    .map(|column| format!("{}:{}", quoted(&column.schema.name), of(column)))
                    .collect();
                format!("{{{}}}", all.join(","))
            };
            let key: Vec<String> =
                table.key.iter().map(|index| quoted(&table.columns[*index].schema.name)).collect();
            let described = Described {
                of: table.schema.clone(),
                mysql_type: each(&|column| quoted(&mysql_type(column))),
                key: if key.is_empty() { "null".to_owned() } else { format!("[{}]", key.join(",")) },
                sql_type: each(&|column| sql_type(column, faithful).to_string()),
            };
            self.described.insert(table.number, described);
        }
        &self.described[&table.number]
    }

    /// What is behind the rows.
    fn write_tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.middle);
        if self.old.is_empty() {
            out.extend_from_slice(b"null");
        } else {
            out.extend_from_slice(&self.old);
            out.push(b']');
        }
        out.extend_from_slice(&self.tail);
    }

    /// The columns that the update changed, as they were.
    fn write_old(&mut self, table: &Table, before: &Image<'_>, after: &Image<'_>) -> Result<()> {
        self.old.push(if self.old.is_empty() { b'[' } else { b',' });
        if !self.form.faithful {
            self.old.push(b'{');
            super::json_form::write_old(&self.form, table, (before, after), &mut self.tools, &mut self.old)?;
            self.old.push(b'}');
            return Ok(());
        }
        self.changed.resize(table.columns.len(), false);
        self.old.push(b'{');
        let mut separator = false;
        for (index, column) in table.columns.iter().enumerate() {
            let known = after.place(index) != Place::Absent;
            self.changed[index] |= known && !before.same(after, index);
            if !self.changed[index] || !known || before.place(index) == Place::Absent {
                continue;
            }
            if separator {
                self.old.push(b',');
            }
            separator = true;
            self.old.extend_from_slice(&column.head);
            write_value(&self.form, table, index, before, &mut self.tools, &mut self.old)?;
        }
        self.old.push(b'}');
        Ok(())
    }
}

impl Format for Canal {
    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()> {
        self.tools.style = facts.style;
        self.old.clear();
        self.changed.clear();
        self.start = usize::MAX;
        let kind = match facts.kind {
            RowsKind::Insert => "INSERT",
            RowsKind::Update => "UPDATE",
            RowsKind::Delete => "DELETE",
        };
        let described = self.describe(table);
        let middle = format!(
            "],\"database\":{},\"es\":{},\"gtid\":{},\"id\":{},\"isDdl\":false,\"mysqlType\":{},\"old\":",
            quoted(&table.database),
            u64::from(facts.timestamp) * 1000,
            quoted(transaction.gtid.as_deref().unwrap_or_default()),
            transaction.end,
            described.mysql_type,
        );
        let tail = format!(
            ",\"pkNames\":{},\"sql\":\"\",\"sqlType\":{},\"table\":{},\"ts\":{},\"type\":\"{kind}\"}}",
            described.key,
            described.sql_type,
            quoted(&table.name),
            transaction.commit_us / 1000,
        );
        (self.middle, self.tail) = (middle.into_bytes(), tail.into_bytes());
        Ok(())
    }

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()> {
        if self.start == usize::MAX {
            self.start = out.start();
            self.sequence = change.sequence;
            out.bytes.extend_from_slice(b"{\"data\":[{");
        } else {
            out.bytes.extend_from_slice(b",{");
        }
        super::json_form::write_fields(&self.form, table, &change.newest(), &mut self.tools, &mut out.bytes)?;
        out.bytes.push(b'}');
        if let (Some(before), Some(after)) = (change.before(), change.after()) {
            self.write_old(table, &before, &after)?;
        }
        if self.single_rows {
            let start = std::mem::replace(&mut self.start, usize::MAX);
            self.write_tail(&mut out.bytes);
            self.old.clear();
            let middle = out.start();
            let image = change.newest();
            super::plain::write_key(&self.form, table, &image, &mut self.tools, &mut out.bytes)?;
            out.finish(About::Table(table.number), start, middle, change.sequence);
        }
        Ok(())
    }

    fn end_event(&mut self, table: &Table, out: &mut Messages) {
        if self.start == usize::MAX {
            return;
        }
        self.write_tail(&mut out.bytes);
        let end = out.start();
        out.finish(About::Table(table.number), self.start, end, self.sequence);
    }

    fn needs_whole_images(&self) -> bool {
        false
    }
}
