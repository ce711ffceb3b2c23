//! Remembers the keys of objects that were written. Most documents of a column have the same keys. So the
//! keys' text is kept, and the keys of the next document are only compared with it, byte for byte.

use std::ops::Range;

use super::string::string;

const SLOTS: usize = 16;
/// Objects with more keys, or longer ones, are not remembered.
const COUNT_MAX: usize = 64;
const BYTES_MAX: usize = 2048;
/// After so many other objects in a row, the slot is given to the next one.
const MISSES_MAX: u8 = 16;

#[derive(Debug, Clone, Default)]
pub struct Shapes {
    slots: [Option<Box<Shape>>; SLOTS],
}

/// The keys of an object.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Bytes of an offset: 2 or 4.
    width: usize,
    /// The entries of the keys, as in the object.
    entries: Vec<u8>,
    /// The place of all keys in the object, and their bytes.
    place: Range<usize>,
    bytes: Vec<u8>,
    /// Bytes of all keys together.
    pub(super) keys_size: usize,
    /// The text before each value: `{"a": `, then `, "b": `. In pieces of at least 16 bytes.
    texts: Vec<Text>,
    misses: u8,
}

#[derive(Debug, Clone)]
struct Text {
    bytes: Vec<u8>,
    length: usize,
}

impl Shapes {
    /// The slot for objects with these entries, and its shape, if it is that of the object. The caller must
    /// put the shape back.
    #[inline]
    pub(super) fn take<const WIDTH: usize>(
        &mut self,
        entries: &[u8],
        data: &[u8],
    ) -> (usize, Option<Box<Shape>>) {
        let last = entries.last_chunk::<4>().map_or(0, |last| u32::from_le_bytes(*last));
        let slot = (last.wrapping_mul(0x9e37_79b1) >> 28) as usize % SLOTS;
        match self.slots[slot].take() {
            Some(shape) if shape.is_of(WIDTH, entries, data) => (slot, Some(shape)),
            Some(mut other) => {
                other.misses += 1;
                self.slots[slot] = Some(other).filter(|other| other.misses < MISSES_MAX);
                (slot, None)
            }
            None => (slot, None),
        }
    }

    #[inline]
    pub(super) fn put(&mut self, slot: usize, mut shape: Box<Shape>) {
        shape.misses = 0;
        self.slots[slot] = Some(shape);
    }

    /// Keeps the keys of an object that was just written, unless the slot still belongs to others. All ranges
    /// are inside `data`.
    pub(super) fn note<const WIDTH: usize>(
        &mut self,
        slot: usize,
        entries: &[u8],
        data: &[u8],
        keys: &[Range<usize>],
    ) {
        if self.slots[slot].is_none() {
            self.slots[slot] = Shape::of(WIDTH, entries, data, keys).map(Box::new);
        }
    }
}

impl Shape {
    fn of(width: usize, entries: &[u8], data: &[u8], keys: &[Range<usize>]) -> Option<Self> {
        let start = keys.iter().map(|key| key.start).min()?;
        let end = keys.iter().map(|key| key.end).max()?;
        if keys.len() > COUNT_MAX || end - start > BYTES_MAX {
            return None;
        }
        let text = |(index, key): (usize, &Range<usize>)| {
            let mut bytes = if index == 0 { b"{".to_vec() } else { b", ".to_vec() };
            string::<true>(data, key.clone(), &mut bytes);
            let length = bytes.len();
            bytes.resize(length.max(16), 0);
            Text { bytes, length }
        };
        Some(Self {
            width,
            entries: entries.to_vec(),
            place: start..end,
            bytes: data[start..end].to_vec(),
            keys_size: keys.iter().map(ExactSizeIterator::len).sum(),
            texts: keys.iter().enumerate().map(text).collect(),
            misses: 0,
        })
    }

    #[inline]
    fn is_of(&self, width: usize, entries: &[u8], data: &[u8]) -> bool {
        self.width == width && self.entries == entries && data.get(self.place.clone()) == Some(&self.bytes)
    }

    /// Appends the text before value number `index`.
    #[inline]
    pub(super) fn write(&self, index: usize, out: &mut Vec<u8>) {
        let Some(text) = self.texts.get(index) else { return };
        match text.bytes.first_chunk::<16>() {
            Some(chunk) if text.length <= 16 => {
                out.extend_from_slice(chunk);
                out.truncate(out.len() - (16 - text.length));
            }
            _ => out.extend_from_slice(&text.bytes[..text.length]),
        }
    }
}
