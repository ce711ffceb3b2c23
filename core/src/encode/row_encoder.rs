//! Rows that a snapshot read, as messages. Each row becomes a row image, and a format writes it like an
//! inserted row of the log, but says that a snapshot read it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, PrimitiveArray, RecordBatch};

use super::arrow_image::{append, arrow_column, labels_of, Labels, Values};
use super::columns::Table;
use super::format::{Change, EventFacts, Format};
use super::image::{Image, Place, Row};
use super::messages::Messages;
use super::route::Route;
use super::routing::{self, Hashing};
use super::ruled::Collector;
use super::schema_ids::MessageSchema;
use crate::column::{added, TypeOptions, SEQUENCE};
use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::output::Change as Collected;
use crate::rows::RowsKind;
use crate::schema::TableSchema;
use crate::table_map::TableMap;
use crate::transaction::Transaction;

/// A format that puts several rows into a message begins a new one after so many bytes.
const MESSAGE_BYTES: usize = 64 * 1024;

pub struct RowEncoder {
    table: Table,
    labels: Vec<Labels>,
    format: Box<dyn Format>,
    hashing: Hashing,
}

/// What is known of the rows of a batch.
pub struct Read<'a> {
    /// When they were read, in microseconds since 1970.
    pub at_us: u64,
    /// The place of the source's log at which they were read.
    pub file: &'a str,
    pub position: u64,
    pub transaction: Option<&'a str>,
    pub server_id: u32,
    /// `source.snapshot` of Debezium's messages: of the first row, of the last one, and of the others.
    pub first: &'a str,
    pub last: &'a str,
    pub others: &'a str,
    /// The sequence of rows without a column `_sequence`.
    pub sequence: u64,
    /// The number of the first row, for formats that number them.
    pub first_row: u32,
}

impl RowEncoder {
    pub fn new(schema: TableSchema, format: Box<dyn Format>, route: Option<&Route>) -> Result<Self> {
        let table = table_of(schema)?.routed(route);
        let labels = table.columns.iter().map(|column| labels_of(&column.kind)).collect();
        Ok(Self { table, labels, format, hashing: Hashing::default() })
    }

    /// The table's columns are found by their names; others but `_sequence` are not read.
    pub fn encode(&mut self, batch: &RecordBatch, read: &Read<'_>) -> Result<Messages> {
        let Self { table, labels, format, hashing } = self;
        let name = table.schema.name();
        let columns = values_of(batch, table)?;
        let sequences = sequences_of(batch);
        let transaction = Transaction {
            start: read.sequence,
            gtid: read.transaction.map(str::to_owned),
            commit_us: read.at_us,
            commit_is_exact: true,
            file: read.file.to_owned(),
            position: read.position,
            end: read.sequence,
            ..Transaction::default()
        };
        let (mut out, mut row, mut bytes) = (Messages::default(), Row::default(), Vec::new());
        let (mut mark, mut begun) = ("", 0);
        for number in 0..batch.num_rows() {
            let wanted = match number {
                0 => read.first,
                _ if number + 1 == batch.num_rows() => read.last,
                _ => read.others,
            };
            if wanted != mark || out.bytes.len() - begun > MESSAGE_BYTES {
                if number > 0 {
                    format.end_event(table, &mut out);
                }
                format.event(&transaction, &facts(read, wanted), table)?;
                (mark, begun) = (wanted, out.bytes.len());
            }
            let sequence = sequences.map_or(read.sequence, |array| array.value(number) as u64);
            let fields = table.columns.iter().zip(labels.iter()).zip(&columns);
            read_row(fields, number, (&mut bytes, &mut row.after))
                .map_err(|(column, error)| error.at(&name, column, sequence))?;
            let change = Change {
                kind: RowsKind::Insert,
                row: &row,
                bytes: &bytes,
                number: read.first_row + number as u32,
                sequence,
                last: false,
            };
            match &table.route {
                None => format.change(table, &change, &mut out)?,
                Some(route) => {
                    let of = (&*table, &transaction, &facts(read, mark));
                    routing::change(route, of, &change, &mut **format, (&mut true, hashing), &mut out)?;
                }
            }
        }
        if batch.num_rows() > 0 {
            format.end_event(table, &mut out);
        }
        Ok(out)
    }

    /// The schemas of the messages so far, and their ids.
    pub fn schemas(&self) -> &[(MessageSchema, u32)] {
        self.format.schemas()
    }
}

/// Rows that a snapshot read, as a walk over the log collects rows for rules (`ruled.rs`).
pub fn collected(
    schema: TableSchema,
    batch: &RecordBatch,
    needed: &[String],
    types: TypeOptions,
) -> Result<RecordBatch> {
    let mut collector = Collector::new(&schema, needed, types)?;
    let table = table_of(schema)?;
    let (name, values, sequences) = (table.schema.name(), values_of(batch, &table)?, sequences_of(batch));
    let labels: Vec<Labels> = table.columns.iter().map(|column| labels_of(&column.kind)).collect();
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for number in 0..batch.num_rows() {
        let sequence = sequences.map_or(0, |array| array.value(number) as u64);
        let fields = table.columns.iter().zip(labels.iter()).zip(&values);
        read_row(fields, number, (&mut bytes, &mut places))
            .map_err(|(column, error)| error.at(&name, column, sequence))?;
        let image = Image { bytes: &bytes, columns: &places, placeholder: &[] };
        collector.push(&table, &image, Collected::Insert, sequence)?;
    }
    collector.finish()
}

/// The columns of a batch, in the order of the table.
fn values_of<'a>(batch: &'a RecordBatch, table: &Table) -> Result<Vec<Values<'a>>> {
    let name = || table.schema.name();
    let columns = table.columns.iter().map(|column| {
        let found = batch.column_by_name(&column.schema.name).map(|array| (array, Values::of(array)));
        let reason = match found {
            Some((_, Some(values))) => return Ok(values),
            Some((array, None)) => format!("has type {}", array.data_type()),
            None => "is missing".to_owned(),
        };
        let reason = format!("rows of {}: column `{}` {reason}", name(), column.schema.name);
        Err(DecodeError::of_table(name(), reason, 0))
    });
    columns.collect()
}

fn sequences_of(batch: &RecordBatch) -> Option<&PrimitiveArray<Int64Type>> {
    let column = added(batch, SEQUENCE)?.as_primitive_opt::<Int64Type>()?;
    (column.null_count() == 0).then_some(column)
}

type Field<'a, 'b> = ((&'b super::columns::Column, &'b Labels), &'b Values<'a>);

/// Makes the image of a row. The error comes with the name of its column.
fn read_row<'a: 'b, 'b>(
    fields: impl Iterator<Item = Field<'a, 'b>>,
    number: usize,
    (bytes, places): (&mut Vec<u8>, &mut Vec<Place>),
) -> std::result::Result<(), (&'b str, crate::error::ValueError)> {
    bytes.clear();
    places.clear();
    for ((column, labels), values) in fields {
        let place = append(column, labels, values, number, bytes);
        places.push(place.map_err(|error| (column.schema.name.as_str(), error))?);
    }
    Ok(())
}

fn facts<'a>(read: &Read<'a>, mark: &'a str) -> EventFacts<'a> {
    EventFacts {
        kind: RowsKind::Insert,
        timestamp: (read.at_us / 1_000_000) as u32,
        server_id: read.server_id,
        position: read.position,
        bytes: 0,
        table_id: 0,
        query: None,
        style: Style::default(),
        snapshot: Some(mark),
    }
}

/// The table with the images that `arrow_image` makes.
fn table_of(schema: TableSchema) -> Result<Table> {
    let fail = |reason: String| DecodeError::of_table(schema.name(), reason, 0);
    let (mut columns, mut in_map) = (Vec::new(), Vec::new());
    for of_schema in &schema.columns {
        let (column, of_map) = arrow_column(of_schema).map_err(fail)?;
        columns.push(column);
        in_map.push(of_map);
    }
    let (database, name) = (schema.database.clone(), schema.table.clone());
    let key = schema.key_positions();
    let map = TableMap {
        table_id: 0,
        database: database.clone(),
        table: name.clone(),
        columns: in_map,
        primary_key: Some(key.clone()),
        required: Vec::new(),
    };
    Ok(Table {
        number: 0,
        database,
        name,
        columns,
        key,
        map,
        schema: Arc::new(schema),
        route: None,
        omitted: Vec::new(),
    })
}
