//! The rows of one transaction.

use std::collections::HashSet;

use crate::rows::RowsKind;
use crate::typed_rows::write::Records;
use crate::value_forms::put_bits;

use super::message::{in_column, Change, Operation, Row};
use super::table::{Column, Table};
use super::value::{put, Refused, Value};

/// A record of rows is ended when it has so many bytes.
const RECORD_BYTES: usize = 32 * 1024;

/// Rows of one record: the same table, kind and columns.
struct Run {
    kind: RowsKind,
    table_id: u32,
    /// Which columns the images have.
    present: Vec<bool>,
    present_after: Vec<bool>,
    images: Vec<u8>,
}

/// The open transaction of a partition.
pub struct Transaction {
    /// The partition's place in the state.
    pub partition: usize,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// The offset of the message whose row comes next.
    pub place: u64,
    records: Records,
    /// Ids of the tables whose definitions were written.
    defined: HashSet<u32>,
    run: Option<Run>,
}

impl Transaction {
    pub fn new(partition: usize) -> Self {
        let records = Records::default();
        Self { partition, timestamp: 0, place: 0, records, defined: HashSet::new(), run: None }
    }

    pub fn bytes(&self) -> usize {
        self.records.bytes.len()
    }

    /// Adds the row, or nothing if it cannot be written. `id`: the table's.
    pub fn add(&mut self, id: u32, table: &Table, change: &Change<'_>) -> Result<(), Refused> {
        let (kind, before, after) = images(table, change)?;
        let present = before.as_ref().or(after.as_ref()).map(Image::present).unwrap_or_default();
        let present_after =
            after.as_ref().filter(|_| before.is_some()).map(Image::present).unwrap_or_default();
        let mut bytes = Vec::new();
        for image in [&before, &after].into_iter().flatten() {
            image.write(table, &mut bytes)?;
        }
        if self.defined.insert(id) {
            self.end_run();
            let names = (table.database.as_str(), table.table.as_str());
            self.records.definition(self.place, id, names, &table.definition().to_string());
        }
        let fits = self.run.as_ref().is_some_and(|run| {
            (run.kind, run.table_id) == (kind, id)
                && run.present == present
                && run.present_after == present_after
                && run.images.len() < RECORD_BYTES
        });
        if !fits {
            self.end_run();
        }
        self.run
            .get_or_insert_with(|| Run { kind, table_id: id, present, present_after, images: Vec::new() })
            .images
            .extend_from_slice(&bytes);
        Ok(())
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let present = (run.present.as_slice(), run.present_after.as_slice());
        self.records.rows(self.place, run.table_id, run.kind, present, &run.images);
    }

    /// The records between the transaction's beginning and its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_run();
        self.records.bytes
    }
}

/// A row image: a value for each column of the table.
struct Image<'r, 'a> {
    values: Vec<Option<&'r Value<'a>>>,
    /// Values of columns that the message does not have, as row images have them.
    columns: Vec<Filled>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    FromMessage,
    Default,
    Absent,
}

impl Image<'_, '_> {
    fn present(&self) -> Vec<bool> {
        self.columns.iter().map(|filled| *filled != Filled::Absent).collect()
    }

    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<(), Refused> {
        let default = |column: &Column, filled: Filled| {
            (filled == Filled::Default)
                .then(|| column.default.as_ref().map(|(_, image)| image.clone()))
                .flatten()
        };
        let mut nulls = Vec::new();
        let mut bytes = Vec::new();
        for ((column, value), filled) in table.columns.iter().zip(&self.values).zip(&self.columns) {
            if *filled == Filled::Absent {
                continue;
            }
            if let Some(image) = default(column, *filled) {
                nulls.push(false);
                bytes.extend(image);
                continue;
            }
            let value = value.filter(|value| **value != Value::Null);
            nulls.push(value.is_none());
            match value {
                Some(value) => {
                    put(value, &column.kind, &mut bytes).map_err(|why| in_column(&column.name, &why))?
                }
                None if table.key.contains(&column.name) => {
                    return Err(in_column(&column.name, "it is part of the key and has no value"))
                }
                None => {}
            }
        }
        put_bits(nulls.into_iter(), out);
        out.extend(bytes);
        Ok(())
    }
}

/// The images of the change. An update whose row before is not known is written as an insert:
/// tables are merged by key, so it replaces the row. Only if values are missing, it is an update of the row
/// that has the key, which keeps them.
fn images<'r, 'a>(
    table: &Table,
    change: &'r Change<'a>,
) -> Result<(RowsKind, Option<Image<'r, 'a>>, Option<Image<'r, 'a>>), Refused> {
    let whole = |row: &'r Row<'a>| image(table, change, row);
    match change.operation {
        Operation::Write => {
            let row = change.after.as_ref().ok_or("it creates a row and has no `after`")?;
            let after = whole(row);
            // A row whose key has changed, and which has long values that have not. Its own columns' defaults
            // would be wrong, and the row before has another key: the target's row must have the values.
            if after.columns.contains(&Filled::Absent) {
                let before = keyed(table, change).ok_or("it lacks values, and its table has no key")?;
                return Ok((RowsKind::Update, Some(before), Some(after)));
            }
            Ok((RowsKind::Insert, None, Some(after)))
        }
        Operation::Update => {
            let row = change.after.as_ref().ok_or(
                "it updates a row and has no `after` (MongoDB: needs a `capture.mode` with full documents)",
            )?;
            let after = whole(row);
            if after.columns.contains(&Filled::Absent) {
                let before = keyed(table, change).ok_or("it lacks values, and its table has no key")?;
                return Ok((RowsKind::Update, Some(before), Some(after)));
            }
            match &change.before {
                Some(before) if !change.key.is_empty() || !before.is_empty() => {
                    let before = whole(before);
                    if before.columns.contains(&Filled::Absent) {
                        return Ok((RowsKind::Insert, None, Some(after)));
                    }
                    Ok((RowsKind::Update, Some(before), Some(after)))
                }
                _ => Ok((RowsKind::Insert, None, Some(after))),
            }
        }
        Operation::Delete => {
            let mut before = match &change.before {
                Some(row) => whole(row),
                None => whole_of_key(table, change)
                    .ok_or("it deletes a row and has neither `before` nor a key")?,
            };
            for filled in &mut before.columns {
                if *filled == Filled::Absent {
                    *filled = Filled::FromMessage;
                }
            }
            Ok((RowsKind::Delete, Some(before), None))
        }
        Operation::Truncate => Err("a truncation has no row".into()),
    }
}

fn image<'r, 'a>(table: &Table, change: &Change<'_>, row: &'r Row<'a>) -> Image<'r, 'a> {
    let mut image = Image { values: Vec::new(), columns: Vec::new() };
    for (at, column) in table.columns.iter().enumerate() {
        let same = change.fields.get(at).is_some_and(|(field, _)| field.name == column.name);
        let place = match same {
            true => Some(at),
            false => change.fields.iter().position(|(field, _)| field.name == column.name),
        };
        let value = place.and_then(|place| row.get(place));
        image.columns.push(match value {
            None => Filled::Default,
            Some(Value::Absent) => Filled::Absent,
            Some(_) => Filled::FromMessage,
        });
        image.values.push(value.filter(|value| **value != Value::Absent));
    }
    image
}

/// An image with the key's columns alone, from the message's key.
fn keyed<'r, 'a>(table: &Table, change: &'r Change<'a>) -> Option<Image<'r, 'a>> {
    let mut image = whole_of_key(table, change)?;
    for (column, filled) in table.columns.iter().zip(&mut image.columns) {
        *filled = if table.key.contains(&column.name) { Filled::FromMessage } else { Filled::Absent };
    }
    Some(image)
}

/// An image with the key's values from the message's key, and null in other columns.
fn whole_of_key<'r, 'a>(table: &Table, change: &'r Change<'a>) -> Option<Image<'r, 'a>> {
    if change.key.is_empty() {
        return None;
    }
    let place = |column: &Column| change.key.iter().position(|name| *name == column.name);
    let values = table.columns.iter().map(|column| change.key_values.get(place(column)?)).collect();
    Some(Image { values, columns: vec![Filled::FromMessage; table.columns.len()] })
}
