//! Rows of messages in the form of rows in memory (`typed_rows`).
//!
//! An image has the columns whose values the message has. A large value that did not change is not sent, so
//! the image lacks its column. The server sends the row before an update only if its key has changed or the
//! replica identity is FULL: else the key is that of the row after it.

use super::message::{Message, Old, Tuple, Value};
use super::value::{append_binary, append_text, Target};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result, ValueError};
use crate::value_forms::put_bits;

/// How the rows of a relation are written.
#[derive(Debug, Clone)]
pub struct Columns {
    pub id: u32,
    /// For messages.
    pub table: String,
    pub names: Vec<String>,
    /// Columns of the replica identity.
    pub is_key: Vec<bool>,
    pub targets: Vec<Target>,
    /// The places of the columns in messages. None: they come in order.
    pub order: Option<Vec<usize>>,
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
    present: Vec<bool>,
    nulls: Vec<bool>,
    values: Vec<u8>,
}

impl Image {
    fn clear(&mut self) {
        self.present.clear();
        self.nulls.clear();
        self.values.clear();
    }

    fn finish(&self, out: &mut Vec<u8>) {
        put_bits(self.nulls.iter().copied(), out);
        out.extend_from_slice(&self.values);
    }
}

impl Columns {
    /// Writes the row of a message as the body of a record of rows (`typed_rows::ROWS`). The message is an
    /// insertion, an update or a deletion of this relation. `offset`: of the message.
    pub fn write(
        &self,
        message: &Message<'_>,
        scratch: &mut Scratch,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Scratch { before, after } = scratch;
        out.clear();
        out.extend_from_slice(&self.id.to_le_bytes());
        let count = (self.targets.len() as u16).to_le_bytes();
        match message {
            Message::Insert { new, .. } => {
                self.image(new, None, offset, after)?;
                out.push(1);
                out.extend_from_slice(&count);
                put_bits(after.present.iter().copied(), out);
                after.finish(out);
            }
            Message::Update { old, new, .. } => {
                match old {
                    Some(old) => self.old(old, offset, before)?,
                    None => self.image(new, Some(&self.is_key), offset, before)?,
                }
                self.image(new, None, offset, after)?;
                out.push(2);
                out.extend_from_slice(&count);
                put_bits(before.present.iter().copied(), out);
                put_bits(after.present.iter().copied(), out);
                before.finish(out);
                after.finish(out);
            }
            Message::Delete { old, .. } => {
                self.old(old, offset, before)?;
                out.push(3);
                out.extend_from_slice(&count);
                put_bits(before.present.iter().copied(), out);
                before.finish(out);
            }
            _ => return Err(DecodeError::of_table(&*self.table, "a message without a row", offset)),
        }
        Ok(())
    }

    fn old(&self, old: &Old<'_>, offset: u64, image: &mut Image) -> Result<()> {
        self.image(&old.tuple, old.is_key.then_some(&self.is_key), offset, image)
    }

    /// `only`: the columns that the image is to have; None: all that the tuple has.
    fn image(&self, tuple: &Tuple<'_>, only: Option<&[bool]>, offset: u64, image: &mut Image) -> Result<()> {
        image.clear();
        if tuple.count != self.targets.len() {
            let reason = format!("a row of {} columns; the relation has {}", tuple.count, self.targets.len());
            return Err(DecodeError::of_table(&*self.table, reason, offset));
        }
        let mut values = tuple.values;
        let ordered = self.order.as_ref().map(|order| ordered(values, order)).transpose()?;
        for (index, target) in self.targets.iter().enumerate() {
            let value = match &ordered {
                Some(ordered) => ordered[index],
                None => Tuple::next(&mut values)?,
            };
            let wanted = only.is_none_or(|only| only[index]) && value != Value::Unchanged;
            image.present.push(wanted);
            if !wanted {
                continue;
            }
            image.nulls.push(value == Value::Null);
            let appended = match value {
                Value::Null | Value::Unchanged => Ok(()),
                Value::Binary(bytes) => append_binary(target, bytes, &mut image.values),
                Value::Text(text) => append_text(target, text, &mut image.values),
            };
            appended.map_err(|error| self.fault(index, &error, offset))?;
        }
        Ok(())
    }

    #[cold]
    fn fault(&self, index: usize, error: &ValueError, offset: u64) -> DecodeError {
        let reason = format!("column `{}` of {}: {error}", self.names[index], self.table);
        DecodeError::of_table(&*self.table, reason, offset)
    }
}

/// The values in the order of a definition.
fn ordered<'a>(mut values: Cursor<'a>, order: &[usize]) -> Result<Vec<Value<'a>>> {
    let sent = order.iter().map(|_| Tuple::next(&mut values)).collect::<Result<Vec<_>>>()?;
    let missing = || values.fail("a definition names a column that is not sent".to_owned());
    order.iter().map(|place| sent.get(*place).copied().ok_or_else(missing)).collect()
}
