//! Rows of messages in the form of rows in memory (`typed_rows`).
//!
//! An image has the columns whose values the message has. A large value that did not change is not sent, so
//! the image lacks its column. The server sends the row before an update only if its key has changed or the
//! replica identity is FULL: else the key is that of the row after it.

use super::message::{Tuple, Value};
use super::value::Target;
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::value_forms::put_bits;
use crate::wire::WireType;

/// How the rows of a relation are written.
#[derive(Debug, Clone)]
pub struct Columns {
    pub id: u32,
    /// For messages.
    pub table: String,
    pub names: Vec<String>,
    targets: Vec<Target>,
    /// Whether the values of a column are in images as they were sent.
    stays: Vec<bool>,
    /// The places of the columns in messages. None: they come in order.
    order: Option<Vec<usize>>,
    /// A bit for each column of the replica identity, and for each column.
    key: Vec<u8>,
    all: Vec<u8>,
}

/// Buffers, which are used again for each row.
#[derive(Default)]
pub struct Scratch {
    before: Image,
    after: Image,
}

/// An image that is being written.
#[derive(Default)]
struct Image {
    /// A bit for each column of the table, from the lowest.
    present: Vec<u8>,
    /// A bit for each column that is present.
    nulls: Vec<u8>,
    values: Vec<u8>,
}

impl Image {
    /// `present`: the bits of the columns that it has unless the tuple lacks them.
    fn begin(&mut self, present: &[u8]) {
        self.present.clear();
        self.present.extend_from_slice(present);
        self.nulls.clear();
        self.nulls.resize(present.len(), 0);
        self.values.clear();
    }

    fn finish(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.nulls);
        out.extend_from_slice(&self.values);
    }
}

impl Columns {
    /// `is_key`: whether a column is one of the replica identity. For the others see the fields.
    pub fn new(
        id: u32,
        table: String,
        names: Vec<String>,
        is_key: &[bool],
        targets: Vec<Target>,
        order: Option<Vec<usize>>,
    ) -> Self {
        let (mut key, mut all) = (Vec::new(), Vec::new());
        put_bits(is_key.iter().copied(), &mut key);
        put_bits(is_key.iter().map(|_| true), &mut all);
        let stays = targets.iter().map(Target::stays).collect();
        Self { id, table, names, targets, stays, order, key, all }
    }

    /// The form of a column's values in images.
    pub fn form(&self, index: usize) -> WireType {
        self.targets[index].wire()
    }

    /// Writes the row of a message as the body of a record of rows (`typed_rows::ROWS`). The message is an
    /// insertion, an update or a deletion of this relation. `offset`: of the message.
    pub fn write(&self, message: &[u8], scratch: &mut Scratch, offset: u64, out: &mut Vec<u8>) -> Result<()> {
        let Scratch { before, after } = scratch;
        let mut cursor = Cursor::new(message, offset);
        let kind = cursor.u8("kind of message")?;
        cursor.skip(4, "relation id")?;
        let (kind, before, after) = match kind {
            b'I' => {
                self.image(&mut cursor, b"N", after)?;
                (1, None, Some(after))
            }
            b'U' => {
                // The key is that of the row after it, if it is not sent.
                let mut new = cursor;
                match new.u8("kind of tuple")? {
                    b'N' => self.values(&mut new, &self.key, before)?,
                    _ => self.image(&mut cursor, b"KO", before)?,
                }
                self.image(&mut cursor, b"N", after)?;
                (2, Some(before), Some(after))
            }
            b'D' => {
                self.image(&mut cursor, b"KO", before)?;
                (3, Some(before), None)
            }
            _ => return Err(DecodeError::of_table(&*self.table, "a message without a row", offset)),
        };
        if !cursor.is_empty() {
            return Err(cursor.fail(format!("{} bytes behind a message", cursor.remaining())));
        }
        out.clear();
        out.extend_from_slice(&self.id.to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&(self.targets.len() as u16).to_le_bytes());
        let images = [before, after];
        images.iter().flatten().for_each(|image| out.extend_from_slice(&image.present));
        images.iter().flatten().for_each(|image| image.finish(out));
        Ok(())
    }

    /// The image of a tuple. `kinds`: that it may have.
    fn image(&self, tuple: &mut Cursor<'_>, kinds: &[u8], image: &mut Image) -> Result<()> {
        match tuple.u8("kind of tuple")? {
            b'K' if kinds.contains(&b'K') => self.values(tuple, &self.key, image),
            kind if kinds.contains(&kind) => self.values(tuple, &self.all, image),
            other => Err(tuple.fail(format!("a tuple of the unknown kind {other:#04x}"))),
        }
    }

    /// Reads a tuple behind its kind.
    fn values(&self, tuple: &mut Cursor<'_>, wanted: &[u8], image: &mut Image) -> Result<()> {
        image.begin(wanted);
        let count = usize::from(tuple.u16("number of columns")?.swap_bytes());
        if count != self.targets.len() {
            let reason = format!("a row of {count} columns; the relation has {}", self.targets.len());
            return Err(DecodeError::of_table(&*self.table, reason, tuple.offset()));
        }
        let count = match &self.order {
            None => self.in_order(tuple, image)?,
            Some(order) => self.ordered(tuple, order, image)?,
        };
        image.nulls.truncate(count.div_ceil(8));
        Ok(())
    }

    /// Appends the values of a tuple that has them in order. Those behind each other that stay as they are,
    /// are copied at once. Returns how many columns are present.
    fn in_order(&self, tuple: &mut Cursor<'_>, image: &mut Image) -> Result<usize> {
        let (first, bytes) = (tuple.position(), { *tuple }.rest());
        let (mut bit, mut run) = (0, 0..0);
        for (index, stays) in self.stays.iter().enumerate() {
            let start = tuple.position() - first;
            let value = Tuple::next(tuple)?;
            let end = tuple.position() - first;
            if !note(index, value, &mut bit, image) {
                continue;
            }
            if run.end != start || !stays {
                image.values.extend_from_slice(&bytes[run]);
                run = start..start;
            }
            run.end = end;
            if !stays {
                self.append(index, value, &bytes[run], tuple, &mut image.values)?;
                run = end..end;
            }
        }
        image.values.extend_from_slice(&bytes[run]);
        Ok(bit)
    }

    /// The same of a tuple whose columns come in another order.
    fn ordered(&self, tuple: &mut Cursor<'_>, order: &[usize], image: &mut Image) -> Result<usize> {
        let mut next = |_: &usize| {
            let (start, bytes) = (tuple.position(), { *tuple }.rest());
            let value = Tuple::next(tuple)?;
            Ok((value, &bytes[..tuple.position() - start]))
        };
        let sent = order.iter().map(&mut next).collect::<Result<Vec<_>>>()?;
        let missing = || tuple.fail("a definition names a column that is not sent".to_owned());
        let mut bit = 0;
        for (index, place) in order.iter().enumerate() {
            let (value, bytes) = *sent.get(*place).ok_or_else(missing)?;
            if note(index, value, &mut bit, image) {
                self.append(index, value, bytes, tuple, &mut image.values)?;
            }
        }
        Ok(bit)
    }

    /// `bytes`: all of the value, with its kind and its length. `place`: for errors.
    fn append(
        &self,
        index: usize,
        value: Value<'_>,
        bytes: &[u8],
        place: &Cursor<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let target = &self.targets[index];
        let written = match value {
            Value::Null | Value::Unchanged => Ok(()),
            _ if self.stays[index] => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Value::Binary(bytes) => target.binary(bytes, &mut target.form(out)),
            Value::Text(text) => target.text(text, &mut target.form(out)),
        };
        written.map_err(|error| error.at(&self.table, &self.names[index], place.offset()))
    }
}

/// Notes whether the image has the column with this number, and whether it is null: the bit `bit`. Returns
/// whether it has a value.
#[inline(always)]
fn note(index: usize, value: Value<'_>, bit: &mut usize, image: &mut Image) -> bool {
    let mask = 1 << (index % 8);
    if image.present[index / 8] & mask == 0 {
        return false;
    }
    match value {
        Value::Unchanged => {
            image.present[index / 8] &= !mask;
            return false;
        }
        Value::Null => image.nulls[*bit / 8] |= 1 << (*bit % 8),
        Value::Binary(_) | Value::Text(_) => {}
    }
    *bit += 1;
    !matches!(value, Value::Null)
}
