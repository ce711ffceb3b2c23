//! Combines the changes of rows that lack columns (`_penstock_present`): each column gets its newest value.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{make_array, Array, ArrayRef, RecordBatch, StringArray};
use arrow_data::transform::MutableArrayData;
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use hashbrown::HashMap;

use crate::column::{added, DELETED, PRESENT, SEQUENCE};
use crate::error::{DecodeError, Result};
use crate::key::{BatchKeys, Key};
use crate::schema::TableSchema;

const BATCH_ROWS: usize = 65_536;
const BATCH_BYTES: usize = 32 * 1024 * 1024;

/// Where a row is.
#[derive(Debug, Clone, Copy)]
struct Place {
    batch: usize,
    row: usize,
    sequence: i64,
}

pub struct Fold {
    table: Arc<TableSchema>,
    batches: Vec<RecordBatch>,
    /// The rows of each key, the newest first.
    rows: HashMap<Key, Vec<Place>>,
}

impl Fold {
    pub fn new(table: Arc<TableSchema>) -> Self {
        Self { table, batches: Vec::new(), rows: HashMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn contains(&self, key: Key) -> bool {
        self.rows.contains_key(&key)
    }

    /// Takes a batch of layout `latest`.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let sequences = added(&batch, SEQUENCE).and_then(|array| array.as_primitive_opt::<Int64Type>());
        let sequences = sequences.ok_or_else(|| self.refuse(format!("the batch lacks `{SEQUENCE}`")))?;
        let mut keys = BatchKeys::new(&self.table, &batch)?;
        for row in 0..batch.num_rows() {
            let key = keys.key(row).map_err(|error| self.refuse(error.to_string()))?;
            let place = Place { batch: self.batches.len(), row, sequence: sequences.value(row) };
            let places = self.rows.entry(key).or_default();
            // If sequences are equal, the later row is newer.
            let newer = places.partition_point(|other| other.sequence > place.sequence);
            places.insert(newer, place);
        }
        self.batches.push(batch);
        Ok(())
    }

    /// Takes rows that are older than all others of their keys, as a batch of layout `latest`. They count
    /// only for keys that are known.
    pub fn complete(&mut self, batch: RecordBatch) -> Result<()> {
        let mut keys = BatchKeys::new(&self.table, &batch)?;
        for row in 0..batch.num_rows() {
            let key = keys.key(row).map_err(|error| self.refuse(error.to_string()))?;
            if let Some(places) = self.rows.get_mut(&key) {
                places.push(Place { batch: self.batches.len(), row, sequence: i64::MIN });
            }
        }
        self.batches.push(batch);
        Ok(())
    }

    /// Returns one row per key, in batches of limited size. It is empty afterwards. Updates of a row that is
    /// deleted before them in the log come from a row that has moved there, and is gone since: the deletion
    /// counts.
    pub fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        let Some(first) = self.batches.first() else { return Ok(Vec::new()) };
        let schema = first.schema();
        let mut keys: Vec<Vec<Place>> = std::mem::take(&mut self.rows).into_values().collect();
        keys.sort_unstable_by_key(|places| (places[0].batch, places[0].row));
        let batches = std::mem::take(&mut self.batches);
        let sources: Vec<Source<'_>> = batches.iter().map(Source::of).collect();
        for places in &mut keys {
            let whole = places.iter().position(|place| sources[place.batch].present(place.row).is_none());
            let gone = whole.filter(|place| sources[places[*place].batch].is_deleted(places[*place].row));
            places.drain(..gone.unwrap_or(0));
        }
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let limit = (BATCH_BYTES * rows.max(1) / bytes.max(1)).clamp(1, BATCH_ROWS);
        let mut finished = Vec::new();
        for part in keys.chunks(limit) {
            let mut columns = Vec::with_capacity(schema.fields().len());
            for (place, field) in schema.fields().iter().enumerate() {
                columns.push(if field.name() == PRESENT {
                    Arc::new(part.iter().map(|places| present(&sources, places)).collect::<StringArray>())
                } else {
                    let position = self.table.position(field.name());
                    let data: Vec<ArrayData> =
                        batches.iter().map(|batch| batch.column(place).to_data()).collect();
                    let chosen = part.iter().map(|places| choose(&sources, places, position));
                    gather(&data, chosen).map_err(|error| self.refuse(error.to_string()))?
                });
            }
            let batch = RecordBatch::try_new(schema.clone(), columns);
            finished.push(batch.map_err(|error| self.refuse(error.to_string()))?);
        }
        Ok(finished)
    }

    /// Applies the known changes to the rows of `batch` (layout `rows`).
    pub fn overlay(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut keys = BatchKeys::new(&self.table, batch)?;
        let mut over = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let key = keys.key(row).map_err(|error| self.refuse(error.to_string()))?;
            over.push(self.rows.get(&key));
        }
        if over.iter().all(Option::is_none) {
            return Ok(batch.clone());
        }
        let sources: Vec<Source<'_>> = self.batches.iter().map(Source::of).collect();
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let mut data = vec![column.to_data()];
            for other in &self.batches {
                let other = other.column_by_name(field.name()).ok_or_else(|| {
                    self.refuse(format!("the changes of its rows lack the column `{}`", field.name()))
                })?;
                data.push(other.to_data());
            }
            let position = self.table.position(field.name());
            let chosen = over.iter().enumerate().map(|(row, places)| {
                let newest = places.and_then(|places| choose(&sources, places, position));
                Some(newest.map_or((0, row), |(batch, row)| (batch + 1, row)))
            });
            columns.push(gather(&data, chosen).map_err(|error| self.refuse(error.to_string()))?);
        }
        RecordBatch::try_new(batch.schema(), columns).map_err(|error| self.refuse(error.to_string()))
    }

    fn refuse(&self, reason: String) -> DecodeError {
        DecodeError::of_table(self.table.name(), reason, 0)
    }
}

/// What a row of a batch has.
struct Source<'a> {
    present: Option<&'a StringArray>,
    deleted: Option<&'a arrow_array::BooleanArray>,
}

impl<'a> Source<'a> {
    fn of(batch: &'a RecordBatch) -> Self {
        Self {
            present: batch.column_by_name(PRESENT).and_then(|array| array.as_string_opt()),
            deleted: batch.column_by_name(DELETED).and_then(|array| array.as_boolean_opt()),
        }
    }

    fn is_deleted(&self, row: usize) -> bool {
        self.deleted.is_some_and(|deleted| deleted.is_valid(row) && deleted.value(row))
    }

    /// `_penstock_present`; None: the row has every column.
    fn present(&self, row: usize) -> Option<&'a [u8]> {
        if self.is_deleted(row) {
            return None;
        }
        let present = self.present.filter(|present| present.is_valid(row))?;
        Some(present.value(row).as_bytes())
    }
}

/// The batch and row with the newest value of the column at `position` in the table, or for Penstock's own
/// columns (`position` None) the newest row. None: no row has the column.
fn choose(sources: &[Source<'_>], places: &[Place], position: Option<usize>) -> Option<(usize, usize)> {
    let newest = places.first()?;
    let Some(position) = position else { return Some((newest.batch, newest.row)) };
    let has = |place: &&Place| match sources[place.batch].present(place.row) {
        None => true,
        Some(present) => present.get(position) == Some(&b'1'),
    };
    places.iter().find(has).map(|place| (place.batch, place.row))
}

/// What the rows of a key have together; None if one of them is whole. Several updates that lack columns are
/// not, even when they have all columns together: a target that takes changes range by range would know their
/// row when they stand in one range, and not know it when they stand in two.
fn present(sources: &[Source<'_>], places: &[Place]) -> Option<String> {
    let mut all: Vec<u8> = Vec::new();
    for place in places {
        let present = sources[place.batch].present(place.row)?;
        all.resize(all.len().max(present.len()), b'0');
        all.iter_mut().zip(present).filter(|(_, one)| **one == b'1').for_each(|(known, _)| *known = b'1');
    }
    Some(String::from_utf8_lossy(&all).into_owned())
}

/// An array of the values at these places of the sources; None: null.
fn gather(
    sources: &[ArrayData],
    places: impl ExactSizeIterator<Item = Option<(usize, usize)>>,
) -> std::result::Result<ArrayRef, ArrowError> {
    let mut values = MutableArrayData::new(sources.iter().collect(), true, places.len());
    for place in places {
        match place {
            Some((source, row)) => values.try_extend(source, row, row + 1)?,
            None => values.try_extend_nulls(1)?,
        }
    }
    Ok(make_array(values.freeze()))
}
