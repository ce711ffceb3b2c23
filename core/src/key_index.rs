//! Finds the rows of Arrow batches that have one of many keys.

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use hashbrown::HashMap;

use crate::column::write_array_key;
use crate::error::ValueError;
use crate::key::Key;

/// Keys, each with its greatest sequence. A key takes 24 bytes and overhead.
///
/// All batches must have the same columns in the same types: those of the key. A key with NULL equals no
/// other, so it is left out and never found.
#[derive(Default)]
pub struct KeyIndex {
    last: HashMap<Key, i64>,
}

impl KeyIndex {
    /// Adds the keys of a batch. `sequences`: one for each of them, without NULLs.
    pub fn add(&mut self, keys: &RecordBatch, sequences: &Int64Array) -> Result<(), ValueError> {
        if sequences.len() != keys.num_rows() || sequences.null_count() > 0 {
            return Err(ValueError::new("sequences that do not fit the keys"));
        }
        self.last.reserve(keys.num_rows());
        for_each(keys, |row, key| {
            let sequence = sequences.value(row);
            let last = self.last.entry(key).or_insert(sequence);
            *last = sequence.max(*last);
        })
    }

    /// The numbers of the rows, from 0, whose key has a greater sequence than `sequence`.
    pub fn find(&self, rows: &RecordBatch, sequence: i64) -> Result<Vec<i64>, ValueError> {
        let mut found = Vec::new();
        for_each(rows, |row, key| {
            if self.last.get(&key).is_some_and(|last| *last > sequence) {
                found.push(row as i64);
            }
        })?;
        Ok(found)
    }

    pub fn len(&self) -> usize {
        self.last.len()
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

fn for_each(batch: &RecordBatch, mut visit: impl FnMut(usize, Key)) -> Result<(), ValueError> {
    let columns: &[ArrayRef] = batch.columns();
    let mut bytes = Vec::new();
    for row in 0..batch.num_rows() {
        if columns.iter().any(|column| column.is_null(row)) {
            continue;
        }
        bytes.clear();
        for column in columns {
            write_array_key(column, row, &mut bytes)?;
        }
        visit(row, Key::of(&bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, Int32Array, StringArray, Time32SecondArray};

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
            .unwrap()
    }

    fn keys(numbers: Vec<Option<i32>>, texts: Vec<Option<&str>>) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int32Array::from(numbers));
        batch(vec![("a", numbers), ("b", Arc::new(StringArray::from(texts)))])
    }

    #[test]
    fn a_row_is_found_by_a_key_with_a_greater_sequence() {
        let mut index = KeyIndex::default();
        let added = keys(vec![Some(1), Some(2), Some(1)], vec![Some("x"), Some("y"), Some("x")]);
        index.add(&added, &Int64Array::from(vec![5, 7, 3])).unwrap();
        assert_eq!(index.len(), 2);
        let rows = keys(vec![Some(1), Some(1), Some(2)], vec![Some("x"), Some("y"), Some("y")]);
        assert_eq!(index.find(&rows, 4).unwrap(), [0, 2]);
        assert_eq!(index.find(&rows, 5).unwrap(), [2]);
        assert_eq!(index.find(&rows.slice(2, 1), 0).unwrap(), [0]);
    }

    #[test]
    fn a_key_with_null_is_never_found() {
        let mut index = KeyIndex::default();
        let added = keys(vec![Some(1), None], vec![None, Some("x")]);
        index.add(&added, &Int64Array::from(vec![1, 1])).unwrap();
        assert!(index.is_empty());
        index.add(&keys(vec![Some(1)], vec![Some("x")]), &Int64Array::from(vec![1])).unwrap();
        assert_eq!(index.find(&added, 0).unwrap(), [0i64; 0]);
    }

    #[test]
    fn what_cannot_be_a_key_is_an_error() {
        let mut index = KeyIndex::default();
        let times = batch(vec![("t", Arc::new(Time32SecondArray::from(vec![1])))]);
        assert!(index.add(&times, &Int64Array::from(vec![1])).is_err());
        let flags = batch(vec![("f", Arc::new(BooleanArray::from(vec![true])))]);
        assert!(index.add(&flags, &Int64Array::from(vec![1, 2])).is_err());
        assert!(index.add(&flags, &Int64Array::from(vec![None])).is_err());
    }
}
