//! A log whose tuples are written otherwise than rows in memory: a tag before each value, and a length, as
//! PostgreSQL's `pgoutput` has it. Its scan and its walk rewrite each tuple into buffers of their own.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::Layout;
use penstock_core::cursor::Cursor;
use penstock_core::encode::encoder::{Encoder, Step};
use penstock_core::encode::{formats, source_info};
use penstock_core::error::{DecodeError, Result};
use penstock_core::json::Style;
use penstock_core::latest::Latest;
use penstock_core::output::Options;
use penstock_core::row_log::{Definition, Dialect, Item, LoggedRows, RowScan, Take, Transactions};
use penstock_core::rows::{Present, RowsEvent, RowsKind};
use penstock_core::schema::TableSchema;
use penstock_core::segment_file::SegmentFile;
use penstock_core::table_map::{MapColumn, TableMap};
use penstock_core::transaction::{KnownPlace, Part, Selection, Survey, Transaction, Walked};
use penstock_core::value_forms::put_bits;
use penstock_core::window::Direction;
use penstock_core::wire::form;

/// A value of a tuple. Unchanged: an update did not touch it, and the log does not have it.
#[derive(Clone, Copy)]
enum Value {
    Null,
    Unchanged,
    Number(i32),
    Text(&'static str),
}
use Value::{Null, Number, Text, Unchanged};

type Tuple = [Value; 3];

/// Records have this size in the log, whatever they become in memory.
const RECORD: u64 = 8;

/// Kind, the tuple before, the tuple after.
type Logged = (RowsKind, Option<Tuple>, Option<Tuple>);

const ROWS: [Logged; 5] = [
    (RowsKind::Insert, None, Some([Number(1), Text("a text that is longer than its record"), Number(10)])),
    (RowsKind::Insert, None, Some([Number(2), Text("b"), Null])),
    (
        RowsKind::Update,
        Some([Number(1), Text("a text that is longer than its record"), Number(10)]),
        Some([Number(1), Unchanged, Number(11)]),
    ),
    (RowsKind::Update, Some([Number(1), Text("a text"), Number(11)]), Some([Number(1), Text("c"), Null])),
    (RowsKind::Delete, Some([Number(2), Text("b"), Null]), None),
];

fn schema() -> TableSchema {
    let document = r#"{"database":"d","table":"t","key":["id"],"columns":[
        {"name":"id","type":"bigint","nullable":false},{"name":"note","type":"longtext"},
        {"name":"count","type":"bigint"}]}"#;
    TableSchema::from_json(document).unwrap()
}

fn map() -> TableMap {
    let columns = schema().columns.into_iter().map(|column| MapColumn {
        wire: form(&column.column_type().unwrap()),
        nullable: column.nullable,
        unsigned: None,
        name: Some(column.name),
        collation: Some(46),
        labels: None,
        geometry: None,
        visible: Some(true),
        element: None,
        neutral: &[],
    });
    TableMap {
        table_id: 1,
        database: "d".into(),
        table: "t".into(),
        columns: columns.collect(),
        primary_key: Some(vec![0]),
        required: Vec::new(),
    }
}

/// Appends a tuple as an image.
fn rewrite(tuple: &Tuple, images: &mut Vec<u8>) {
    let there = || tuple.iter().filter(|value| !matches!(value, Unchanged));
    put_bits(there().map(|value| matches!(value, Null)), images);
    for value in there() {
        match value {
            Null | Unchanged => {}
            Number(number) => images.extend(i64::from(*number).to_le_bytes()),
            Text(text) => {
                images.extend((text.len() as u32).to_le_bytes());
                images.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// The buffers of one record.
#[derive(Default)]
struct Rewritten {
    bits: Vec<u8>,
    images: Vec<u8>,
}

impl Rewritten {
    fn rows(&mut self, offset: u64, logged: &Logged) -> Result<RowsEvent<'_>> {
        let (kind, before, after) = logged;
        self.bits.clear();
        self.images.clear();
        for tuple in before.iter().chain(after) {
            put_bits(tuple.iter().map(|value| !matches!(value, Unchanged)), &mut self.bits);
            rewrite(tuple, &mut self.images);
        }
        let mut bits = Cursor::new(&self.bits, offset);
        let present = Present::parse(&mut bits, 3)?;
        let present_after = if bits.is_empty() { present } else { Present::parse(&mut bits, 3)? };
        Ok(RowsEvent {
            kind: *kind,
            table_id: 1,
            flags: 0,
            present,
            present_after,
            columns: 3,
            partial_json: false,
            absent_is_unchanged: true,
            identity_only: false,
            record: Some(offset),
            images: Cursor::new(&self.images, offset),
        })
    }
}

struct Scan {
    table: Arc<TableSchema>,
    map: Arc<TableMap>,
    next: usize,
    buffer: Rewritten,
}

impl Scan {
    fn new() -> Self {
        Self { table: Arc::new(schema()), map: Arc::new(map()), next: 0, buffer: Rewritten::default() }
    }
}

impl RowScan for Scan {
    type At = usize;

    fn table(&self) -> &Arc<TableSchema> {
        &self.table
    }

    fn dialect(&self) -> Dialect {
        Dialect::default()
    }

    fn next_rows(&mut self) -> Result<Option<usize>> {
        self.next += 1;
        Ok((self.next <= ROWS.len()).then_some(self.next - 1))
    }

    fn map(&self, _: &usize) -> Arc<TableMap> {
        self.map.clone()
    }

    fn offset(&self, at: &usize) -> u64 {
        *at as u64 * RECORD
    }

    fn commit_us(&self, _: &usize) -> i64 {
        0
    }

    fn rows(&mut self, at: &usize, map: &TableMap, _: Direction) -> Result<RowsEvent<'_>> {
        let offset = self.offset(at);
        let rows = self.buffer.rows(offset, &ROWS[*at])?;
        rows.check(map)?;
        Ok(rows)
    }

    fn locate(&self, error: DecodeError) -> DecodeError {
        error
    }
}

/// The same log as one transaction.
struct Order {
    done: bool,
    buffer: Rewritten,
}

struct Known;

impl Definition for Known {
    fn id(&self) -> Result<u64> {
        Ok(1)
    }

    fn bytes(&self) -> &[u8] {
        b"the definition"
    }

    fn names(&self) -> Result<(&[u8], &[u8])> {
        Ok((b"d", b"t"))
    }

    fn table(&self) -> Result<(TableMap, Option<TableSchema>)> {
        Ok((map(), Some(schema())))
    }

    fn offset(&self) -> u64 {
        0
    }
}

impl Transactions for Order {
    fn next_group(&mut self) -> Result<Option<Survey>> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        let part = Part {
            file: SegmentFile::from("log"),
            base: 0,
            start: 0,
            end: None,
            known: vec![KnownPlace::of_file("log")],
        };
        let rows = ROWS.len() as u64;
        Ok(Some(Survey::plain(Transaction::default(), Vec::new(), Some(rows), Arc::new(part), (0, RECORD))))
    }

    fn walk(&mut self, _: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>> {
        take(from.number, &Item::Definition(&Known))?;
        for (at, logged) in ROWS.iter().enumerate().skip(from.position as usize) {
            let (offset, number) = (at as u64 * RECORD, at as u64 + 1);
            let rows = self.buffer.rows(offset, logged)?;
            let rows = LoggedRows {
                bytes: { rows.images }.rest(),
                rows,
                number,
                offset,
                packed: true,
                position: offset,
                size: RECORD as u32,
                timestamp: 0,
                server_id: 0,
                json: Style::default(),
            };
            if !take(number, &Item::Rows(rows))? && at + 1 < ROWS.len() {
                return Ok(Some(Walked { position: at as u64 + 1, number }));
            }
        }
        Ok(None)
    }
}

/// The columns `id`, `note` and `_sequence` of a decoder's batches.
fn decoded(mut decoder: impl Batches, sequence: usize) -> Vec<(i64, Option<String>, i64)> {
    let mut found = Vec::new();
    while let Some(batch) = decoder.next_batch().unwrap() {
        let numbers = |at: usize| batch.column(at).as_primitive::<Int64Type>().values().to_vec();
        let notes = batch.column(1).as_string::<i32>();
        for (row, (id, sequence)) in numbers(0).into_iter().zip(numbers(sequence)).enumerate() {
            found.push((id, notes.iter().nth(row).flatten().map(str::to_owned), sequence));
        }
    }
    found
}

#[test]
fn a_scan_may_rewrite_tuples_into_a_buffer_of_its_own() {
    let rows = decoded(Changelog::new(Scan::new(), &Options::of(Layout::Changelog)).unwrap(), 4);
    let sequences: Vec<i64> = rows.iter().map(|row| row.2).collect();
    // In the order of the log, although the first update's image before is longer than its record.
    assert_eq!(sequences, [0, 8, 16, 17, 24, 25, 32]);
    // What the update did not touch is the value before it.
    assert_eq!(rows[3].1.as_deref(), Some("a text that is longer than its record"));
    let options = Options::of(Layout::Latest);
    let rows = decoded(Latest::new(Scan::new(), &options, Default::default()).unwrap(), 4);
    assert_eq!(rows.iter().map(|row| (row.0, row.2)).collect::<Vec<_>>(), [(2, 32), (1, 25)]);
    assert_eq!(rows[1].1.as_deref(), Some("c"));
}

#[test]
fn a_walk_may_rewrite_tuples_into_a_buffer_of_its_own() {
    let format = formats::by_name("json", "{}", &source_info::ROWS).unwrap();
    let order = Box::new(Order { done: false, buffer: Rewritten::default() });
    let mut encoder = Encoder::new(order, format, Vec::new(), Selection::default());
    let mut messages = Vec::new();
    while let Some(step) = encoder.next_step(1).unwrap() {
        let Step::Messages(batch) = step else { panic!("statements") };
        for index in 0..batch.messages.len() {
            let message = batch.messages.get(index).unwrap();
            messages.push(String::from_utf8(message.value.unwrap().to_vec()).unwrap());
        }
    }
    assert_eq!(messages.len(), ROWS.len());
    assert!(messages[0].contains("a text that is longer than its record"), "{}", messages[0]);
    assert!(messages[2].contains("\"count\":11"), "{}", messages[2]);
    assert!(messages[3].contains("\"note\":\"c\""), "{}", messages[3]);
}
