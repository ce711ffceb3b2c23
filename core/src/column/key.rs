//! Writes values as parts of a key. The bytes are equal exactly if the values are, and their own end can be
//! found in them.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, Int8Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};

use super::{ColumnBuilder, Storage};
use crate::charset;
use crate::error::ValueError;

impl ColumnBuilder {
    /// Writes a value that is still in the builder, in the same way as `write_array_key` does from the
    /// finished array.
    #[inline]
    pub fn write_key(&self, row: usize, out: &mut Vec<u8>) -> Result<(), ValueError> {
        if self.nulls.binary_search(&(row as u32)).is_ok() {
            return Err(ValueError::new("a key column that is null"));
        }
        match &self.storage {
            Storage::Bool(values) => out.push(values.get_bit(row).into()),
            Storage::Int32(values) | Storage::Date(values) => out.extend(values[row].to_le_bytes()),
            Storage::Int64(values) | Storage::Timestamp(values, _) => out.extend(values[row].to_le_bytes()),
            Storage::Float32(values) => out.extend(values[row].to_bits().to_le_bytes()),
            Storage::Float64(values) => out.extend(values[row].to_bits().to_le_bytes()),
            Storage::Decimal(values, ..) => write_decimal(values[row], out),
            Storage::Binary(bytes) => write_bytes(bytes.get(row), out),
            Storage::List(_) => return Err(ValueError::new("a key column that is a list")),
            Storage::Text(bytes) => {
                let text = bytes.get(row);
                if std::str::from_utf8(text).is_ok() {
                    write_bytes(text, out);
                } else {
                    let mut escaped = Vec::new();
                    charset::append_utf8(text, &mut escaped);
                    write_bytes(&escaped, out);
                }
            }
        }
        Ok(())
    }
}

/// Writes a value that is not null. The array has one of the types of `arrow_type`.
pub fn write_array_key(array: &ArrayRef, row: usize, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match array.data_type() {
        DataType::Boolean => out.push(array.as_boolean().value(row).into()),
        DataType::Int32 => out.extend(array.as_primitive::<Int32Type>().value(row).to_le_bytes()),
        DataType::Int64 => out.extend(array.as_primitive::<Int64Type>().value(row).to_le_bytes()),
        DataType::Float32 => {
            out.extend(array.as_primitive::<Float32Type>().value(row).to_bits().to_le_bytes())
        }
        DataType::Float64 => {
            out.extend(array.as_primitive::<Float64Type>().value(row).to_bits().to_le_bytes())
        }
        DataType::Decimal128(..) => write_decimal(array.as_primitive::<Decimal128Type>().value(row), out),

        DataType::Date32 => out.extend(array.as_primitive::<Date32Type>().value(row).to_le_bytes()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            out.extend(array.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes())
        }
        DataType::Utf8 => write_bytes(array.as_string::<i32>().value(row).as_bytes(), out),
        DataType::LargeUtf8 => write_bytes(array.as_string::<i64>().value(row).as_bytes(), out),
        DataType::Binary => write_bytes(array.as_binary::<i32>().value(row), out),
        DataType::LargeBinary => write_bytes(array.as_binary::<i64>().value(row), out),
        other => return Err(ValueError::new(format!("a key column of type {other}"))),
    }
    Ok(())
}

/// As `write_array_key`, but a value has the same bytes in all types to which its column may be widened.
/// Integers are written as INT64, and floats as FLOAT64.
pub fn write_widened_key(array: &ArrayRef, row: usize, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let integer = match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row),
        DataType::Float32 => {
            let double = f64::from(array.as_primitive::<Float32Type>().value(row));
            out.extend(double.to_bits().to_le_bytes());
            return Ok(());
        }
        _ => return write_array_key(array, row, out),
    };
    out.extend(integer.to_le_bytes());
    Ok(())
}

/// Writes as few bytes as the number needs, so that BIGINT UNSIGNED keys are short enough not to be hashed.
fn write_decimal(value: i128, out: &mut Vec<u8>) {
    let spare = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    // One bit is the sign.
    let length = ((128 - spare) / 8 + 1) as usize;
    out.push(length as u8);
    out.extend_from_slice(&value.to_le_bytes()[..length]);
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(bytes.len()) {
        Ok(length @ 0..=254) => out.push(length),
        _ => {
            out.push(255);
            out.extend((bytes.len() as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decimals_are_equal_as_keys_exactly_when_they_are_equal(left: i128, right: i128, shift in 0..127) {
            for (left, right) in [(left >> shift, right >> shift), (left >> shift, left >> shift)] {
                let mut keys = [Vec::new(), Vec::new()];
                write_decimal(left, &mut keys[0]);
                write_decimal(right, &mut keys[1]);
                prop_assert_eq!(left == right, keys[0] == keys[1]);
                prop_assert_eq!(usize::from(keys[0][0]), keys[0].len() - 1);
            }
        }
    }
}
