//! Works on several ranges together: keeps the last change of each key, and collects the keys that occur.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{make_array, Array, ArrayRef, RecordBatch};
use arrow_data::transform::MutableArrayData;
use arrow_schema::ArrowError;
use hashbrown::hash_map::Entry;
use hashbrown::HashMap;

use crate::batches::Batches;
use crate::column::{added, TypeOptions, PRESENT, SEQUENCE};
use crate::error::{DecodeError, Result};
use crate::fold::Fold;
use crate::key::{BatchKeys, Key, KeyReader};
use crate::latest::{for_each_key, Latest};
use crate::row_log::RowScan;
use crate::schema::TableSchema;
use crate::seen_keys::SharedKeys;

/// Keeps the last change of each key in `latest` batches of several splits: the one with the greatest
/// `_sequence`.
///
/// If batches have `_penstock_present`, rows are combined column by column instead.
pub struct LatestReducer {
    table: Arc<TableSchema>,
    fold: Fold,
    batches: Vec<RecordBatch>,
    /// The last change of each key: batch, row, sequence.
    last: HashMap<Key, (u32, u32, i64)>,
}

impl LatestReducer {
    pub fn new(table: Arc<TableSchema>) -> Result<Self> {
        require_key(&table)?;
        Ok(Self { fold: Fold::new(table.clone()), table, batches: Vec::new(), last: HashMap::new() })
    }

    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.column_by_name(PRESENT).is_some() {
            return self.fold.push(batch);
        }
        let refuse = |reason: String| DecodeError::of_table(self.table.name(), reason, 0);
        let sequences = added(&batch, SEQUENCE).and_then(|array| array.as_primitive_opt::<Int64Type>());
        let sequences = sequences.ok_or_else(|| refuse(format!("the batch lacks `{SEQUENCE}`")))?;
        let mut keys = BatchKeys::new(&self.table, &batch)?;
        let number = self.batches.len() as u32;
        for row in 0..batch.num_rows() {
            let key = keys.key(row).map_err(|error| refuse(error.to_string()))?;
            let candidate = (number, row as u32, sequences.value(row));
            match self.last.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(candidate)),
                Entry::Occupied(mut entry) if entry.get().2 <= candidate.2 => drop(entry.insert(candidate)),
                Entry::Occupied(_) => {}
            }
        }
        self.batches.push(batch);
        Ok(())
    }

    /// See `Fold::complete`.
    pub fn complete(&mut self, batch: RecordBatch) -> Result<()> {
        self.fold.complete(batch)
    }

    /// Returns the remaining rows of each batch. The reducer is empty afterwards.
    pub fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        let batches = std::mem::take(&mut self.batches);
        let mut kept: Vec<Vec<bool>> = batches.iter().map(|batch| vec![false; batch.num_rows()]).collect();
        for (batch, row, _) in std::mem::take(&mut self.last).into_values() {
            kept[batch as usize][row as usize] = true;
        }
        let filtered = batches.iter().zip(kept).map(|(batch, kept)| filter(batch, &kept));
        let filtered = filtered.filter(|batch| batch.as_ref().map_or(true, |batch| batch.num_rows() > 0));
        filtered.chain(self.fold.finish()?.into_iter().map(Ok)).collect()
    }
}

/// A set of the keys that occur in parts of the log, in images before and after changes.
///
/// With partial images, keys that only occur in updates with incomplete images are kept apart, with what
/// these updates say.
pub struct KeySet {
    table: Arc<TableSchema>,
    reader: KeyReader,
    keys: SharedKeys,
    partial: Option<(TypeOptions, Fold)>,
    defaults: Option<RecordBatch>,
}

impl KeySet {
    /// `defaults`: as in `output::Options`.
    pub fn new(
        table: Arc<TableSchema>,
        types: TypeOptions,
        partial_images: bool,
        defaults: Option<RecordBatch>,
    ) -> Result<Self> {
        let partial = partial_images.then(|| (types, Fold::new(table.clone())));
        let reader = KeyReader::new(&table, types)?.with_defaults(&table, defaults.as_ref());
        Ok(Self { reader, table, keys: SharedKeys::default(), partial, defaults })
    }

    /// The keys, shared with a decoder that adds to them.
    pub fn shared(&self) -> SharedKeys {
        self.keys.clone()
    }

    pub fn table(&self) -> &Arc<TableSchema> {
        &self.table
    }

    /// Adds the keys of the table's rows in a part of the log.
    pub fn add<S: RowScan>(&mut self, mut scan: S) -> Result<()> {
        let Some((types, fold)) = &mut self.partial else {
            let mut keys = self.keys.lock();
            return for_each_key(&mut scan, &mut self.reader, |key| {
                keys.insert(key);
            });
        };
        // The split gets a set of its own, because splits may come in any order.
        let keys = SharedKeys::default();
        let mut changes = Latest::of_partial_rows(scan, *types, self.defaults.clone(), keys.clone())?;
        while let Some(batch) = changes.next_batch()? {
            fold.push(batch)?;
        }
        self.keys.lock().extend(std::mem::take(&mut *keys.lock()));
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.keys.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.lock().is_empty()
    }

    /// Returns the rows whose keys are not in the set. If a key occurs only in incomplete images, its row is
    /// returned with the changes of these images.
    pub fn drop_from(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let present = self.keys.lock();
        if present.is_empty() {
            return Ok(batch.clone());
        }
        let mut keys = BatchKeys::new(&self.table, batch)?;
        let mut kept = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let key = keys
                .key(row)
                .map_err(|error| DecodeError::of_table(self.table.name(), error.to_string(), 0))?;
            kept.push(!present.is_whole(key));
        }
        let kept = filter(batch, &kept)?;
        match &self.partial {
            Some((_, fold)) if !fold.is_empty() => fold.overlay(&kept),
            _ => Ok(kept),
        }
    }
}

fn require_key(table: &TableSchema) -> Result<()> {
    if table.key.is_empty() {
        return Err(DecodeError::of_table(table.name(), format!("{} has no key", table.name()), 0));
    }
    Ok(())
}

/// The rows of a batch for which `kept` is true.
fn filter(batch: &RecordBatch, kept: &[bool]) -> Result<RecordBatch> {
    let count = kept.iter().filter(|kept| **kept).count();
    if count == kept.len() {
        return Ok(batch.clone());
    }
    let columns = batch
        .columns()
        .iter()
        .map(|column| filter_column(column, kept, count))
        .collect::<std::result::Result<_, ArrowError>>();
    columns
        .and_then(|columns| RecordBatch::try_new(batch.schema(), columns))
        .map_err(|error| DecodeError::new(error.to_string(), 0))
}

fn filter_column(
    column: &ArrayRef,
    kept: &[bool],
    count: usize,
) -> std::result::Result<ArrayRef, ArrowError> {
    let data = column.to_data();
    let mut taken = MutableArrayData::new(vec![&data], false, count);
    let mut row = 0;
    for run in kept.chunk_by(|left, right| left == right) {
        if run[0] {
            taken.try_extend(0, row, row + run.len())?;
        }
        row += run.len();
    }
    Ok(make_array(taken.freeze()))
}
