//! Canal's entries: `com.alibaba.otter.canal.protocol.CanalEntry`, as its server gives them to its clients.
//!
//! A transaction is an entry TRANSACTIONBEGIN, one ROWDATA for each row event, and TRANSACTIONEND.

use std::collections::HashMap;
use std::sync::Arc;

use super::binary::{
    prefixed, varint_length, write_bytes, write_tag, write_varint, Protobuf, LENGTH, VARINT,
};
use super::canal::{mysql_type, Options};
use super::canal_value::write_text;
use super::columns::Table;
use super::format::{Change, EventFacts, Format};
use super::image::{Image, Place};
use super::json_form::Tools;
use super::messages::{About, Messages};
use super::source_info::SourceInfo;
use crate::error::Result;
use crate::rows::RowsKind;
use crate::schema::{ColumnType, TableSchema};
use crate::transaction::{EventPlace, Transaction};

const TRANSACTION_BEGIN: u64 = 1;
const ROW_DATA: u64 = 2;
const TRANSACTION_END: u64 = 3;

/// Codes of `java.sql.Types`.
const BLOB: i32 = 2004;
const OTHER: i32 = 1111;

/// What is the same in all messages `Column` of one column: what stands before its value if that has the
/// column's own type, and behind the value.
struct Known {
    sql_type: i32,
    head: Vec<u8>,
    mysql_type: Vec<u8>,
}

/// Where a head says that a value was updated, and that it is NULL, from its end.
const UPDATED: usize = 3;
const NULL: usize = 1;

/// What stands before a column's value.
fn head(table: &Table, index: usize, sql_type: i32) -> Vec<u8> {
    let mut out = Vec::new();
    always(1, index as u64, &mut out);
    number(2, i64::from(sql_type) as u64, &mut out);
    text(3, &table.columns[index].schema.name, &mut out);
    always(4, table.key.contains(&index).into(), &mut out);
    always(5, 0, &mut out);
    always(6, 0, &mut out);
    out
}

pub struct CanalEntry {
    options: Options,
    info: &'static SourceInfo,
    tools: Tools,
    tables: HashMap<u32, (Arc<TableSchema>, Arc<Vec<Known>>)>,
    known: Arc<Vec<Known>>,
    /// Up to the properties, and them but for the number of rows.
    header: Vec<u8>,
    properties: Vec<u8>,
    row_change: Vec<u8>,
    rows: Vec<u8>,
    row_count: u64,
    text: Vec<u8>,
    sequence: u64,
}

/// A field with a number. Zero is the default, which is not written.
fn number(field: usize, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        always(field, value, out);
    }
}

fn always(field: usize, value: u64, out: &mut Vec<u8>) {
    write_tag(field, VARINT, out);
    write_varint(value, out);
}

#[inline(always)]
fn bytes(field: usize, value: &[u8], out: &mut Vec<u8>) {
    write_tag(field, LENGTH, out);
    write_bytes::<Protobuf>(value, out);
}

fn text(field: usize, value: &str, out: &mut Vec<u8>) {
    if !value.is_empty() {
        bytes(field, value.as_bytes(), out);
    }
}

fn pair(field: usize, key: &str, value: &str, out: &mut Vec<u8>) {
    let mut inside = Vec::with_capacity(key.len() + value.len() + 4);
    text(1, key, &mut inside);
    text(2, value, &mut inside);
    bytes(field, &inside, out);
}

/// A header up to its properties. `event`: its place, and the type of the change.
fn write_header(
    info: &SourceInfo,
    transaction: &Transaction,
    event: &EventPlace,
    (database, table): (&str, &str),
    kind: Option<u64>,
    out: &mut Vec<u8>,
) {
    always(1, 1, out);
    text(2, &transaction.file, out);
    number(3, event.position, out);
    number(4, event.server_id.into(), out);
    text(5, "UTF-8", out);
    number(6, u64::from(event.timestamp) * 1000, out);
    if let Some(source) = info.canal_type {
        always(7, source, out);
    }
    bytes(8, database.as_bytes(), out);
    bytes(9, table.as_bytes(), out);
    number(10, event.bytes.into(), out);
    if let Some(kind) = kind {
        always(11, kind, out);
    }
}

fn properties(transaction: &Transaction) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(gtid) = &transaction.gtid {
        pair(12, "curtGtid", gtid, &mut out);
    }
    out
}

/// A field with bytes that are in several places.
fn joined(field: usize, parts: &[&[u8]], out: &mut Vec<u8>) {
    write_tag(field, LENGTH, out);
    write_varint(parts.iter().map(|part| part.len() as u64).sum(), out);
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn write_entry(header: &[&[u8]], kind: u64, stored: &[&[u8]], out: &mut Vec<u8>) {
    joined(1, header, out);
    always(2, kind, out);
    joined(3, stored, out);
}

impl CanalEntry {
    pub fn new(options: Options, info: &'static SourceInfo) -> Self {
        Self {
            options,
            info,
            tools: Tools::default(),
            tables: HashMap::new(),
            known: Arc::new(Vec::new()),
            header: Vec::new(),
            properties: Vec::new(),
            row_change: Vec::new(),
            rows: Vec::new(),
            row_count: 0,
            text: Vec::new(),
            sequence: 0,
        }
    }

    fn prepare(&mut self, table: &Table) {
        if let Some((of, known)) = self.tables.get(&table.number) {
            if Arc::ptr_eq(of, &table.schema) {
                self.known = known.clone();
                return;
            }
        }
        let columns = table.columns.iter().enumerate().map(|(index, column)| {
            let sql_type = super::canal::sql_type(column, self.options.faithful);
            let mut known = Known { sql_type, head: head(table, index, sql_type), mysql_type: Vec::new() };
            text(10, &mysql_type(column), &mut known.mysql_type);
            known
        });
        self.known = Arc::new(columns.collect());
        self.tables.insert(table.number, (table.schema.clone(), self.known.clone()));
    }

    /// The columns of an image. `before`: it is the image after a change, and this is the one before it.
    fn write_columns(
        &mut self,
        table: &Table,
        field: usize,
        image: &Image<'_>,
        before: Option<Option<Image<'_>>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let known = self.known.clone();
        for (index, column) in known.iter().enumerate() {
            if image.place(index) == Place::Absent {
                continue;
            }
            self.text.clear();
            let tools = (self.options.faithful, &mut self.tools);
            let sql_type = write_text(table, index, image, tools, &mut self.text)?;
            let updated = match before {
                None => false,
                Some(None) => true,
                Some(Some(before)) => !before.same(image, index),
            };
            let null_type = || match &table.columns[index].kind {
                ColumnType::Set { .. } if self.options.faithful => BLOB,
                ColumnType::Json if self.options.faithful => OTHER,
                _ => column.sql_type,
            };
            let own_type = sql_type.unwrap_or_else(null_type);
            let value = sql_type.map(|_| self.text.len());
            let length = |head: &[u8]| {
                let value = value.map_or(0, |length| 1 + varint_length(length as u64) + length);
                (head.len() + value + column.mysql_type.len()) as u64
            };
            write_tag(field, LENGTH, out);
            if own_type == column.sql_type {
                write_varint(length(&column.head), out);
                out.extend_from_slice(&column.head);
            } else {
                let head = head(table, index, own_type);
                write_varint(length(&head), out);
                out.extend_from_slice(&head);
            }
            let end = out.len();
            out[end - UPDATED] = updated.into();
            out[end - NULL] = value.is_none().into();
            if value.is_some() {
                bytes(8, &self.text, out);
            }
            out.extend_from_slice(&column.mysql_type);
        }
        Ok(())
    }

    fn boundary(&mut self, transaction: &Transaction, kind: u64, stored: &[u8], out: &mut Messages) {
        let event = if kind == TRANSACTION_END { &transaction.end_event } else { &transaction.begin_event };
        self.header.clear();
        write_header(self.info, transaction, event, ("", ""), None, &mut self.header);
        let start = out.start();
        write_entry(&[&self.header, &properties(transaction)], kind, &[stored], &mut out.bytes);
        let end = out.start();
        out.finish(About::Transaction, start, end, transaction.end);
    }
}

impl Format for CanalEntry {
    fn begin(&mut self, transaction: &Transaction, out: &mut Messages) -> Result<()> {
        let mut stored = Vec::new();
        number(4, transaction.thread_id.unwrap_or(0).into(), &mut stored);
        self.boundary(transaction, TRANSACTION_BEGIN, &stored, out);
        Ok(())
    }

    fn event(&mut self, transaction: &Transaction, facts: &EventFacts<'_>, table: &Table) -> Result<()> {
        self.tools.style = facts.style;
        self.prepare(table);
        let kind = match facts.kind {
            RowsKind::Insert => 1,
            RowsKind::Update => 2,
            RowsKind::Delete => 3,
        };
        let event = EventPlace {
            position: facts.position,
            bytes: facts.bytes,
            timestamp: facts.timestamp,
            server_id: facts.server_id,
        };
        self.header.clear();
        let name = (table.database.as_str(), table.name.as_str());
        write_header(self.info, transaction, &event, name, Some(kind), &mut self.header);
        self.properties = properties(transaction);
        self.row_change.clear();
        number(1, facts.table_id, &mut self.row_change);
        always(2, kind, &mut self.row_change);
        always(10, 0, &mut self.row_change);
        (self.row_count, self.sequence) = (0, 0);
        self.rows.clear();
        Ok(())
    }

    fn change(&mut self, table: &Table, change: &Change<'_>, out: &mut Messages) -> Result<()> {
        if self.row_count == 0 {
            self.sequence = change.sequence;
        }
        self.row_count += 1;
        let (before, after) = (change.before(), change.after());
        let mut rows = std::mem::take(&mut self.rows);
        write_tag(12, LENGTH, &mut rows);
        let written = prefixed::<Protobuf, _>(&mut rows, |rows| {
            if let Some(image) = &before {
                self.write_columns(table, 1, image, None, rows)?;
            }
            if let Some(image) = &after {
                self.write_columns(table, 2, image, Some(before), rows)?;
            }
            Ok(())
        });
        self.rows = rows;
        written?;
        if self.options.single_rows {
            self.end_event(table, out);
        }
        Ok(())
    }

    fn end_event(&mut self, table: &Table, out: &mut Messages) {
        if self.row_count == 0 {
            return;
        }
        let properties = self.properties.len();
        pair(12, "rowsCount", &self.row_count.to_string(), &mut self.properties);
        let start = out.start();
        let (header, stored) = ([&*self.header, &self.properties], [&*self.row_change, &self.rows]);
        write_entry(&header, ROW_DATA, &stored, &mut out.bytes);
        let end = out.start();
        out.finish(About::Table(table.number), start, end, self.sequence);
        self.properties.truncate(properties);
        self.rows.clear();
        self.row_count = 0;
    }

    fn end(&mut self, transaction: &Transaction, out: &mut Messages) -> Result<()> {
        let mut stored = Vec::new();
        text(2, &transaction.xid.unwrap_or(0).to_string(), &mut stored);
        self.boundary(transaction, TRANSACTION_END, &stored, out);
        Ok(())
    }

    fn needs_whole_images(&self) -> bool {
        false
    }
}
