//! Turns builders into Arrow arrays.

use std::sync::Arc;

use arrow_array::types::{GenericBinaryType, GenericStringType};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, GenericByteArray,
    Int32Array, Int64Array, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};

use super::{Bytes, ColumnBuilder, Storage};
use crate::charset;
use crate::error::ValueError;
use crate::pool::share;

impl ColumnBuilder {
    /// Returns the values as an array. The builder is empty afterwards, with room for as many values again.
    pub fn finish(&mut self) -> Result<ArrayRef, ValueError> {
        let nulls = self.finish_nulls();
        // Batches of one table need about the same memory.
        let bytes = match &self.storage {
            Storage::Text(bytes) | Storage::Binary(bytes) => bytes.values.len() + bytes.values.len() / 16,
            _ => 0,
        };
        let fresh = self.storage.with_room(self.len(), bytes);
        let storage = std::mem::replace(&mut self.storage, fresh);
        Ok(match storage {
            Storage::Bool(mut values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Storage::Int32(values) => Arc::new(Int32Array::new(share(values), nulls)),
            Storage::Int64(values) => Arc::new(Int64Array::new(share(values), nulls)),
            Storage::Float32(values) => Arc::new(Float32Array::new(share(values), nulls)),
            Storage::Float64(values) => Arc::new(Float64Array::new(share(values), nulls)),
            Storage::Date(values) => Arc::new(Date32Array::new(share(values), nulls)),
            Storage::Timestamp(values, zoned) => Arc::new(
                TimestampMicrosecondArray::new(share(values), nulls)
                    .with_timezone_opt(zoned.then_some("UTC")),
            ),
            Storage::Decimal(values, precision, scale) => {
                let array =
                    Decimal128Array::new(share(values), nulls).with_precision_and_scale(precision, scale);
                Arc::new(array.map_err(|error| ValueError::new(error.to_string()))?)
            }
            Storage::Text(bytes) => text_array(bytes, nulls)?,
            Storage::Binary(bytes) => {
                let (offsets, values) = bytes.into_buffers();
                Arc::new(GenericByteArray::<GenericBinaryType<i32>>::new(offsets, values, nulls))
            }
            Storage::List(lists) => lists.finish(nulls)?,
        })
    }

    /// Makes room for so many rows, in memory of earlier batches if there is some.
    pub fn make_room(&mut self, rows: usize) {
        if self.is_empty() {
            self.storage = self.storage.with_room(rows, 0);
        }
    }

    fn finish_nulls(&mut self) -> Option<NullBuffer> {
        if self.nulls.is_empty() {
            return None;
        }
        let rows = self.len();
        let mut valid = vec![u8::MAX; rows.div_ceil(8)];
        if let Some(last) = valid.last_mut().filter(|_| rows % 8 > 0) {
            *last = (1 << (rows % 8)) - 1;
        }
        for row in self.nulls.drain(..) {
            valid[row as usize / 8] &= !(1 << (row % 8));
        }
        Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(valid), 0, rows)))
    }

    /// Drops the values and keeps their memory.
    pub fn clear(&mut self) {
        match &mut self.storage {
            Storage::Bool(values) => values.truncate(0),
            Storage::Int32(values) | Storage::Date(values) => values.clear(),
            Storage::Int64(values) | Storage::Timestamp(values, _) => values.clear(),
            Storage::Float32(values) => values.clear(),
            Storage::Float64(values) => values.clear(),
            Storage::Decimal(values, ..) => values.clear(),
            Storage::Text(bytes) | Storage::Binary(bytes) => {
                bytes.values.clear();
                bytes.ends.truncate(1);
            }
            Storage::List(lists) => {
                lists.ends.truncate(1);
                lists.elements.clear();
            }
        }
        self.nulls.clear();
    }
}

impl Bytes {
    fn into_buffers(self) -> (OffsetBuffer<i32>, Buffer) {
        (OffsetBuffer::new(share(self.ends)), share(self.values).into_inner())
    }
}

/// The whole buffer is checked at once, which is enough for nearly every batch. Only if that fails are values
/// checked one by one.
fn text_array(bytes: Bytes, nulls: Option<NullBuffer>) -> Result<ArrayRef, ValueError> {
    type Text = GenericByteArray<GenericStringType<i32>>;
    let (offsets, values) = bytes.into_buffers();
    if let Ok(array) = Text::try_new(offsets.clone(), values.clone(), nulls.clone()) {
        return Ok(Arc::new(array));
    }
    let (offsets, values) = escaped(&offsets, &values)?;
    let array = Text::try_new(offsets, values, nulls);
    Ok(Arc::new(array.map_err(|error| ValueError::new(error.to_string()))?))
}

/// The same values, with bytes that are not UTF-8 escaped.
fn escaped(offsets: &OffsetBuffer<i32>, values: &Buffer) -> Result<(OffsetBuffer<i32>, Buffer), ValueError> {
    let mut escaped = Bytes::with_room(offsets.len() - 1, values.len());
    for pair in offsets.windows(2) {
        charset::append_utf8(&values[pair[0] as usize..pair[1] as usize], &mut escaped.values);
        let end = i32::try_from(escaped.values.len());
        escaped.ends.push(end.map_err(|_| ValueError::new("values of one batch exceed 2 GiB"))?);
    }
    Ok(escaped.into_buffers())
}
