//! Appends values to a column. Each method takes one of the forms that a value can have on the wire. A value
//! that does not fit the column is an error; it is never changed to fit.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};

use super::encode::{write_base64, write_hex};
use super::{Binaries, Bytes, ColumnBuilder, ExtremeDates, NotNumbers, Storage, ZeroDates};
use crate::charset::Charset;
use crate::decimal::{self, DecimalImage};
use crate::digits;
use crate::error::ValueError;
use crate::json;
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Instant, Time};

pub(super) type Result = std::result::Result<(), ValueError>;

impl Bytes {
    /// Marks the end of the value whose bytes were just written.
    #[inline(always)]
    pub(super) fn end_value(&mut self) -> Result {
        match i32::try_from(self.values.len()) {
            Ok(end) => {
                self.ends.push(end);
                Ok(())
            }
            Err(_) => Err(ValueError::new("values of one batch exceed 2 GiB; lower the rows of a batch")),
        }
    }

    #[inline]
    fn end(&self) -> usize {
        *self.ends.last().unwrap_or(&0) as usize
    }
}

/// How many values there are then.
#[inline(always)]
fn push<T>(values: &mut Vec<T>, value: T) -> usize {
    values.push(value);
    values.len()
}

impl ColumnBuilder {
    #[inline]
    pub fn append_null(&mut self) {
        let rows = match &mut self.storage {
            Storage::Bool(values) => {
                values.append(false);
                values.len()
            }
            Storage::Int32(values) | Storage::Date(values) => push(values, 0),
            Storage::Int64(values) | Storage::Timestamp(values, _) => push(values, 0),
            Storage::Float32(values) => push(values, 0.0),
            Storage::Float64(values) => push(values, 0.0),
            Storage::Decimal(values, ..) => push(values, 0),
            Storage::Text(bytes) | Storage::Binary(bytes) => {
                let end = bytes.end() as i32;
                push(&mut bytes.ends, end) - 1
            }
            Storage::List(lists) => {
                let end = lists.elements.len() as i32;
                push(&mut lists.ends, end) - 1
            }
        };
        self.nulls.push(rows as u32 - 1);
    }

    /// Appends to an int32 column.
    #[inline(always)]
    pub(super) fn push_i32(&mut self, value: i32) -> Result {
        let Storage::Int32(values) = &mut self.storage else { return Err(self.unfit("an integer")) };
        values.push(value);
        Ok(())
    }

    /// Appends to an int64 column.
    #[inline(always)]
    pub(super) fn push_i64(&mut self, value: i64) -> Result {
        let Storage::Int64(values) = &mut self.storage else { return Err(self.unfit("an integer")) };
        values.push(value);
        Ok(())
    }

    /// Appends to a decimal128 column.
    #[inline(always)]
    pub(super) fn push_i128(&mut self, value: i128) -> Result {
        let Storage::Decimal(values, ..) = &mut self.storage else { return Err(self.unfit("an integer")) };
        values.push(value);
        Ok(())
    }

    /// Appends bytes unchanged, and zero bytes up to `length`.
    #[inline(always)] // Called for most values: the compiler's own choice changes with code elsewhere.
    pub(super) fn push_bytes(&mut self, value: &[u8], length: usize) -> Result {
        let (Storage::Text(bytes) | Storage::Binary(bytes)) = &mut self.storage else {
            return Err(self.unfit("bytes"));
        };
        bytes.values.extend_from_slice(value);
        if value.len() < length {
            bytes.values.resize(bytes.values.len() + length - value.len(), 0);
        }
        bytes.end_value()
    }

    /// Appends an integer of any width, or a YEAR as its number (0 is the zero year).
    #[inline]
    pub fn append_i64(&mut self, value: i64) -> Result {
        match &mut self.storage {
            Storage::Int32(values) => values.push(i32::try_from(value).map_err(|_| too_large())?),
            Storage::Int64(values) => values.push(value),
            Storage::Decimal(values, _, 0) => values.push(value.into()),
            // TINYINT(1) as a boolean.
            Storage::Bool(values) => values.append(value != 0),
            _ => return Err(self.unfit("an integer")),
        }
        Ok(())
    }

    #[inline]
    pub fn append_u64(&mut self, value: u64) -> Result {
        match &mut self.storage {
            Storage::Int32(values) => values.push(i32::try_from(value).map_err(|_| too_large())?),
            Storage::Int64(values) => values.push(i64::try_from(value).map_err(|_| too_large())?),
            Storage::Decimal(values, _, 0) => values.push(value.into()),
            Storage::Text(bytes) => {
                digits::write_u64(value, &mut bytes.values);
                bytes.end_value()?;
            }
            _ => return Err(self.unfit("an integer")),
        }
        Ok(())
    }

    #[inline(always)]
    pub fn append_f32(&mut self, value: f32) -> Result {
        let Storage::Float32(values) = &mut self.storage else { return Err(self.unfit("a float")) };
        values.push(value);
        Ok(())
    }

    #[inline(always)]
    pub fn append_f64(&mut self, value: f64) -> Result {
        let Storage::Float64(values) = &mut self.storage else { return Err(self.unfit("a double")) };
        values.push(value);
        Ok(())
    }

    /// Appends a decimal from a row image, which must have the column's precision and scale.
    #[inline]
    pub fn append_decimal(&mut self, image: DecimalImage<'_>) -> Result {
        match &mut self.storage {
            Storage::Decimal(values, ..) => values.push(image.unscaled()?),
            Storage::Text(bytes) if matches!(self.kind, ColumnType::Decimal { .. }) => {
                image.write_text(&mut bytes.values)?;
                bytes.end_value()?;
            }
            Storage::Float64(values) => {
                let mut text = Vec::with_capacity(68);
                image.write_text(&mut text)?;
                values.push(decimal::nearest_double(&text)?);
            }
            _ => return Err(self.unfit("a decimal")),
        }
        Ok(())
    }

    /// Appends a decimal from the text of a result set.
    pub fn append_decimal_text(&mut self, text: &[u8]) -> Result {
        match &mut self.storage {
            Storage::Decimal(values, precision, scale) => {
                values.push(decimal::parse_text(text, *precision, *scale as u8)?)
            }
            Storage::Text(bytes) if matches!(self.kind, ColumnType::Decimal { .. }) => {
                bytes.values.extend_from_slice(decimal::without_padding(text));
                bytes.end_value()?;
            }
            Storage::Float64(values) => values.push(decimal::nearest_double(text)?),
            _ => return Err(self.unfit("a decimal")),
        }
        Ok(())
    }

    /// Appends characters in the column's character set (char, varchar, text), or bytes (binary, blob,
    /// geometry, vector). BINARY(n) gets zero bytes up to its length.
    #[inline]
    pub fn append_bytes(&mut self, value: &[u8]) -> Result {
        match (&mut self.storage, &self.kind) {
            (Storage::Text(bytes), ColumnType::Text { charset, trimmed }) => {
                let start = bytes.values.len();
                match charset {
                    Charset::Utf8 => bytes.values.extend_from_slice(value),
                    charset => charset.append(value, &mut bytes.values),
                }
                if *trimmed {
                    let spaces = bytes.values[start..].iter().rev().take_while(|byte| **byte == b' ').count();
                    bytes.values.truncate(bytes.values.len() - spaces);
                }
                bytes.end_value()?;
            }
            (Storage::Binary(bytes), kind) => {
                bytes.values.extend_from_slice(value);
                if let ColumnType::Binary { padded: Some(length) } = kind {
                    let missing = (*length as usize).saturating_sub(value.len());
                    bytes.values.resize(bytes.values.len() + missing, 0);
                }
                bytes.end_value()?;
            }
            (Storage::Text(bytes), ColumnType::Binary { padded }) => {
                let missing = padded.map_or(0, |length| (length as usize).saturating_sub(value.len()));
                match self.options.binary {
                    Binaries::Hex => write_hex(value, missing, &mut bytes.values),
                    _ => write_base64(value, missing, &mut bytes.values),
                }
                bytes.end_value()?;
            }
            (Storage::Text(bytes), ColumnType::Network(network)) => {
                network.write_text(value, &mut bytes.values)?;
                bytes.end_value()?;
            }
            (_, ColumnType::Numeric) => return self.append_number(value),
            (Storage::Text(_), ColumnType::Interval) => return self.push_bytes(value, 0),
            _ => return Err(self.unfit("bytes")),
        }
        Ok(())
    }

    /// Appends 1 to 64 bits, given as a number.
    #[inline]
    pub fn append_bit(&mut self, value: u64) -> Result {
        match (&mut self.storage, &self.kind) {
            (Storage::Bool(values), _) if value <= 1 => values.append(value == 1),
            (Storage::Int64(values), ColumnType::Bit { .. }) => {
                values.push(i64::try_from(value).map_err(|_| too_large())?)
            }
            (Storage::Decimal(values, _, 0), ColumnType::Bit { .. }) => values.push(value.into()),
            _ => return Err(self.unfit("bits")),
        }
        Ok(())
    }

    /// Appends bits given as big-endian bytes, the form of result sets.
    pub fn append_bit_bytes(&mut self, value: &[u8]) -> Result {
        let mut wide = [0; 8];
        let Some(start) = wide.len().checked_sub(value.len()) else {
            return Err(self.unfit("more than 64 bits"));
        };
        wide[start..].copy_from_slice(value);
        self.append_bit(u64::from_be_bytes(wide))
    }

    #[inline]
    pub fn append_date(&mut self, value: Date) -> Result {
        match &mut self.storage {
            Storage::Date(values) => match value.days() {
                Some(days) => values.push(days),
                None => return self.append_no_date(),
            },
            Storage::Text(bytes) if matches!(self.kind, ColumnType::Date) => {
                value.write_text(&mut bytes.values);
                bytes.end_value()?;
            }
            _ => return Err(self.unfit("a date")),
        }
        Ok(())
    }

    #[inline]
    pub fn append_datetime(&mut self, value: DateTime) -> Result {
        match (&mut self.storage, &self.kind) {
            (Storage::Timestamp(values, _), _) => match value.micros_since_1970() {
                Some(micros) => values.push(micros),
                None => return self.append_no_date(),
            },
            (Storage::Text(bytes), ColumnType::DateTime { fsp } | ColumnType::Timestamp { fsp }) => {
                value.write_text(*fsp, &mut bytes.values);
                bytes.end_value()?;
            }
            _ => return Err(self.unfit("a date and time")),
        }
        Ok(())
    }

    /// Appends a TIMESTAMP: seconds since 1970, where 0 is the zero date, and microseconds. If the session's
    /// time zone is UTC, its fields can be given to `append_datetime` instead.
    #[inline]
    pub fn append_timestamp(&mut self, seconds: u64, micros: u32) -> Result {
        match &mut self.storage {
            // Four bytes, even unsigned ones (MariaDB 11.5 and later), never exceed the years that Spark has.
            Storage::Timestamp(values, true)
                if seconds != 0 && seconds <= u32::MAX.into() && micros < 1_000_000 =>
            {
                values.push(seconds as i64 * 1_000_000 + i64::from(micros));
                Ok(())
            }
            _ => self.append_instant(Instant::of_timestamp(seconds, micros)?),
        }
    }

    pub fn append_instant(&mut self, value: Instant) -> Result {
        match (&mut self.storage, value) {
            (Storage::Timestamp(values, true), Instant::Micros(micros)) => values.push(micros),
            _ => return self.append_datetime(value.datetime()),
        }
        Ok(())
    }

    #[inline]
    pub fn append_time(&mut self, value: Time) -> Result {
        match (&mut self.storage, &self.kind) {
            (Storage::Text(bytes), ColumnType::Time { fsp }) => {
                value.write_text(*fsp, &mut bytes.values);
                bytes.end_value()?;
            }
            (Storage::Int64(values), ColumnType::Time { .. }) => values.push(value.micros()),
            _ => return Err(self.unfit("a time")),
        }
        Ok(())
    }

    /// Appends an ENUM by its ordinal, where 0 is the empty string of an invalid value, or a SET by its bits.
    #[inline]
    pub fn append_label(&mut self, value: u64) -> Result {
        match (&mut self.storage, &self.kind) {
            (Storage::Text(bytes), ColumnType::Enum { labels, .. }) => {
                if let Some(index) = value.checked_sub(1) {
                    let label = usize::try_from(index).ok().and_then(|index| labels.get(index));
                    let label = label.ok_or_else(|| unknown_label(value, labels.len()))?;
                    bytes.values.extend_from_slice(label.as_bytes());
                }
                bytes.end_value()?;
            }
            (Storage::Text(bytes), ColumnType::Set { labels, .. }) => {
                let start = bytes.values.len();
                let mut bits = value;
                while bits != 0 {
                    let label = labels.get(bits.trailing_zeros() as usize);
                    let label = label.ok_or_else(|| unknown_label(value, labels.len()))?;
                    // As the server does: there is no comma behind an empty label at the beginning.
                    if bytes.values.len() > start {
                        bytes.values.push(b',');
                    }
                    bytes.values.extend_from_slice(label.as_bytes());
                    bits &= bits - 1;
                }
                bytes.end_value()?;
            }
            _ => return Err(self.unfit("an enum or set value")),
        }
        Ok(())
    }

    /// Appends an ENUM or SET from a result set: its text in the column's character set.
    pub fn append_label_bytes(&mut self, value: &[u8]) -> Result {
        let (Storage::Text(bytes), ColumnType::Enum { charset, .. } | ColumnType::Set { charset, .. }) =
            (&mut self.storage, &self.kind)
        else {
            return Err(self.unfit("an enum or set value"));
        };
        charset.append(value, &mut bytes.values);
        bytes.end_value()?;
        Ok(())
    }

    /// Appends an address or UUID from a result set: its text.
    pub fn append_network_text(&mut self, text: &[u8]) -> Result {
        let (Storage::Text(bytes), ColumnType::Network(_)) = (&mut self.storage, &self.kind) else {
            return Err(self.unfit("an address or UUID"));
        };
        bytes.values.extend_from_slice(text);
        bytes.end_value()?;
        Ok(())
    }

    /// Appends a JSON document from its text as the server prints it.
    pub fn append_json_text(&mut self, text: &[u8]) -> Result {
        self.append_json(|out| {
            out.extend_from_slice(text);
            Ok(())
        })
    }

    /// Appends a binary JSON document, as text in the form of its server.
    #[inline]
    pub(super) fn append_json_document(&mut self, document: &[u8]) -> Result {
        let (Storage::Text(bytes), ColumnType::Json) = (&mut self.storage, &self.kind) else {
            return Err(self.unfit("a JSON document"));
        };
        json::write_text_with(&mut self.json_shapes, self.json_style, document, &mut bytes.values)?;
        bytes.end_value()
    }

    /// Appends a JSON document. `write` writes its text as the server prints it.
    #[inline]
    pub fn append_json(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result) -> Result {
        let (Storage::Text(bytes), ColumnType::Json) = (&mut self.storage, &self.kind) else {
            return Err(self.unfit("a JSON document"));
        };
        write(&mut bytes.values)?;
        bytes.end_value()?;
        Ok(())
    }

    /// Appends the first value of an array, which has the column's type.
    pub fn append_from(&mut self, array: &ArrayRef) -> Result {
        if array.is_empty() || array.data_type() != &self.data_type() {
            return Err(self.unfit("a default of another type"));
        }
        if array.is_null(0) {
            self.append_null();
            return Ok(());
        }
        match &mut self.storage {
            Storage::Bool(values) => values.append(array.as_boolean().value(0)),
            Storage::Int32(values) => values.push(array.as_primitive::<Int32Type>().value(0)),
            Storage::Date(values) => values.push(array.as_primitive::<Date32Type>().value(0)),
            Storage::Int64(values) => values.push(array.as_primitive::<Int64Type>().value(0)),
            Storage::Timestamp(values, _) => {
                values.push(array.as_primitive::<TimestampMicrosecondType>().value(0))
            }
            Storage::Float32(values) => values.push(array.as_primitive::<Float32Type>().value(0)),
            Storage::Float64(values) => values.push(array.as_primitive::<Float64Type>().value(0)),
            Storage::Decimal(values, ..) => values.push(array.as_primitive::<Decimal128Type>().value(0)),
            Storage::Text(bytes) => {
                bytes.values.extend_from_slice(array.as_string::<i32>().value(0).as_bytes());
                bytes.end_value()?;
            }
            Storage::Binary(bytes) => {
                bytes.values.extend_from_slice(array.as_binary::<i32>().value(0));
                bytes.end_value()?;
            }
            Storage::List(lists) => lists.append_from(array)?,
        }
        Ok(())
    }

    /// Appends a value of `ValueSink::extreme`.
    #[cold]
    pub(super) fn append_extreme(&mut self, text: &[u8]) -> Result {
        match (&mut self.storage, &self.kind) {
            (Storage::Text(_), _) => return self.push_bytes(text, 0),
            (Storage::Float64(values), _) => match decimal::Plain::parse(text)? {
                decimal::Plain::NotNumber(value) => values.push(value),
                decimal::Plain::Digits(_) => return Err(self.unfit("a number")),
            },
            (_, ColumnType::Decimal { .. }) if self.options.not_numbers == NotNumbers::Null => {
                self.append_null();
            }
            (_, ColumnType::Decimal { .. }) => {
                return Err(ValueError::new(
                    "NaN or an infinity, which a DECIMAL cannot have; set `types.not_numbers` to `null` or \
                 `text` (in a key, to `text`)",
                ))
            }
            _ if self.options.extreme_dates == ExtremeDates::Null => self.append_null(),
            _ => {
                return Err(ValueError::new(
                    "a date that is infinite, before the year 1 or after 9999; set `types.extreme_dates` to \
                 `null` or `text` (in a key, to `text`)",
                ))
            }
        }
        Ok(())
    }

    fn append_no_date(&mut self) -> Result {
        if self.options.zero_dates == ZeroDates::Error {
            return Err(ValueError::new(
                "a zero, partial or impossible date; set `zero_dates` to `null` or `text` to let it through",
            ));
        }
        self.append_null();
        Ok(())
    }

    #[cold]
    pub(super) fn unfit(&self, form: &str) -> ValueError {
        ValueError::new(format!("{form} cannot stand in a column of type {:?}", self.data_type()))
    }
}

#[cold]
fn too_large() -> ValueError {
    ValueError::new("an integer beyond the range of the column's type")
}

#[cold]
fn unknown_label(value: u64, labels: usize) -> ValueError {
    ValueError::new(format!("label number or bits {value}, but only {labels} labels are known"))
}
