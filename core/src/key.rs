//! Keys as 128-bit numbers. A key has the same number whether it is read from a row image or from an Arrow
//! batch.
//!
//! The number is made from the key's values in Arrow, as a target has them: text in UTF-8 (CHAR without
//! trailing spaces, labels as text), BINARY with its zero bytes, floats as bits, TIMESTAMP in UTC. Values of
//! up to 15 bytes are the number itself, so most keys cannot collide. Longer ones are hashed with MD5.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use md5::{Digest, Md5};

use crate::column::{ColumnBuilder, TypeOptions, Walk, ZeroDates};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result, ValueError};
use crate::rows::{missing_column, walk_image, Present, RowSink, RowsEvent, Taken};
use crate::schema::TableSchema;
use crate::table_map::TableMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u128);

impl Key {
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.len() <= 15 {
            let mut wide = [0; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            wide[15] = bytes.len() as u8;
            return Self(u128::from_le_bytes(wide));
        }
        Self(u128::from_le_bytes(Md5::digest(bytes).into()))
    }

    /// The bucket of the key, of `count` buckets. It is the same in every process.
    pub fn bucket(self, count: u32) -> u32 {
        // Multiplies both halves by odd constants and folds them, which spreads similar keys.
        let low = (self.0 as u64 ^ 0x9e37_79b9_7f4a_7c15) as u128;
        let high = ((self.0 >> 64) as u64 ^ 0xd6e8_feb8_6659_fd93) as u128;
        let product = low.wrapping_mul(high);
        let folded = (product as u64 ^ (product >> 64) as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((u128::from(folded >> 32) * u128::from(count)) >> 32) as u32
    }
}

/// Reads keys from row images.
pub struct KeyReader {
    /// For each column of the table, by its position, its place in `builders`.
    places: Vec<Option<usize>>,
    builders: Vec<ColumnBuilder>,
    /// Steps over whole images of the last table map.
    walk: Option<Walk>,
    /// For each place, the value of the column if an insert leaves it out. None: not known.
    defaults: Vec<Option<ArrayRef>>,
    /// Whether the images are those of inserts.
    inserts: bool,
    bytes: Vec<u8>,
}

impl RowSink for KeyReader {
    type Column = ColumnBuilder;

    #[inline]
    fn column(&mut self, index: usize) -> Option<&mut ColumnBuilder> {
        match self.places.get(index) {
            Some(Some(place)) => self.builders.get_mut(*place),
            _ => None,
        }
    }

    fn absent(&mut self, index: usize) -> Taken {
        let Some(Some(place)) = self.places.get(index).copied() else { return Ok(()) };
        match (self.inserts, &self.defaults[place]) {
            (true, Some(default)) => self.builders[place].append_from(default),
            _ => Err(missing_column()),
        }
    }
}

impl KeyReader {
    /// The table must have a key.
    pub fn new(table: &TableSchema, mut types: TypeOptions) -> Result<Self> {
        let refuse = |reason: String| DecodeError::of_table(table.name(), reason, 0);
        let positions = table.key_positions();
        if positions.is_empty() {
            return Err(refuse(format!("{} has no key", table.name())));
        }
        // Keys with different zero dates must not become one key.
        if types.zero_dates == ZeroDates::Null {
            types.zero_dates = ZeroDates::Error;
        }
        let mut reader = Self {
            places: vec![None; table.columns.len()],
            builders: Vec::new(),
            walk: None,
            defaults: vec![None; positions.len()],
            inserts: false,
            bytes: Vec::new(),
        };
        for position in positions {
            reader.places[position] = Some(reader.builders.len());
            reader.builders.push(ColumnBuilder::of(table, position, types).map_err(refuse)?);
        }
        Ok(reader)
    }

    /// `defaults`: as in `output::Options`.
    pub fn with_defaults(mut self, table: &TableSchema, defaults: Option<&RecordBatch>) -> Self {
        for (place, position) in table.key_positions().into_iter().enumerate() {
            let found = defaults.and_then(|batch| batch.column_by_name(&table.columns[position].name));
            self.defaults[place] = found.cloned();
        }
        self
    }

    /// Whether the images that come next are of inserts.
    pub fn set_inserts(&mut self, inserts: bool) {
        self.inserts = inserts;
    }

    /// The table map of the images that come next. Images of another map are read too, but more slowly.
    pub fn set_map(&mut self, map: &Arc<TableMap>) {
        if !self.walk.as_ref().is_some_and(|walk| walk.is_of(map)) {
            let place = |column: usize| self.places.get(column).copied().flatten();
            let builder = |column: usize| place(column).map(|place| (place, &self.builders[place]));
            self.walk = Some(Walk::new(map, builder));
        }
    }

    /// Reads the key of the image at the cursor. The cursor moves behind the image.
    #[inline]
    pub fn read(&mut self, image: &mut Cursor<'_>, map: &TableMap, present: Present<'_>) -> Result<Key> {
        let offset = image.offset();
        self.builders.iter_mut().for_each(ColumnBuilder::clear);
        match self.walk.as_ref().filter(|walk| present.is_full() && walk.is_of(map)) {
            Some(walk) => walk.run(image, present, &mut self.builders)?,
            None => walk_image(image, map, present, self)?,
        }
        self.key(map, offset)
    }

    /// The key of the row after an update: see `RowsEvent::walk_after`.
    #[inline]
    pub fn read_after<'a>(
        &mut self,
        before: Cursor<'a>,
        image: &mut Cursor<'a>,
        map: &TableMap,
        rows: &RowsEvent<'a>,
    ) -> Result<Key> {
        if rows.after_is_whole() {
            return self.read(image, map, rows.present_after);
        }
        let offset = image.offset();
        self.builders.iter_mut().for_each(ColumnBuilder::clear);
        rows.walk_after(before, image, map, self)?;
        self.key(map, offset)
    }

    #[inline]
    fn key(&mut self, map: &TableMap, offset: u64) -> Result<Key> {
        self.bytes.clear();
        for builder in &self.builders {
            let written = builder.write_key(0, &mut self.bytes);
            written.map_err(|error| error.at(&map.name(), "key", offset))?;
        }
        Ok(Key::of(&self.bytes))
    }
}

/// Reads the keys of batches.
pub struct BatchKeys {
    arrays: Vec<ArrayRef>,
    bytes: Vec<u8>,
}

impl BatchKeys {
    /// The batch must have the key's columns, with the types of `arrow_schema`.
    pub fn new(table: &TableSchema, batch: &RecordBatch) -> Result<Self> {
        let mut arrays = Vec::new();
        for name in &table.key {
            let array = batch.column_by_name(name).ok_or_else(|| {
                DecodeError::of_table(table.name(), format!("the batch lacks the key column `{name}`"), 0)
            })?;
            arrays.push(array.clone());
        }
        Ok(Self { arrays, bytes: Vec::new() })
    }

    pub fn key(&mut self, row: usize) -> std::result::Result<Key, ValueError> {
        self.bytes.clear();
        for array in &self.arrays {
            if array.is_null(row) {
                return Err(ValueError::new("a key column that is null"));
            }
            crate::column::write_array_key(array, row, &mut self.bytes)?;
        }
        Ok(Key::of(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_keys_are_themselves_and_lengths_count() {
        assert_ne!(Key::of(&[1]), Key::of(&[1, 0]));
        assert_ne!(Key::of(&[0; 15]), Key::of(&[0; 16]));
    }

    #[test]
    fn counting_keys_fall_into_even_shares() {
        for width in [4, 8] {
            let mut shares = [0; 7];
            for number in 0..70_000_u64 {
                shares[Key::of(&number.to_le_bytes()[..width]).bucket(7) as usize] += 1;
            }
            assert!(shares.iter().all(|count| (9_500..10_500).contains(count)), "{shares:?}");
        }
    }
}
