//! The canonical text of a row, and its hash. The server and this module compute the same text, so a row at
//! the source can be compared with a row of an Arrow batch.
//!
//! `penstock.sources.mysql.verify.sql` has the SQL expression of the same text for each column type. Both
//! files must be changed together. `tests/sources/mysql/verify/test_sql.py` compares them on a real server.
//!
//! A row is its columns joined by `|`. NULL is `~`; otherwise
//!
//! | column type | text |
//! |---|---|
//! | integers, `bit`, `year` | the number in decimal |
//! | `decimal`, `numeric` | as the server prints it, with all digits of its scale |
//! | `float`, `double` | the fewest digits that read back as the same double, in the server's notation |
//! | `date`, `datetime`, `timestamp`, `time` | as the server prints it, timestamps in UTC |
//! | `char`, `varchar`, `enum`, `set`, `inet4`, `inet6`, `uuid`, `interval` | `LENGTH:TEXT`, bytes of UTF-8 |
//! | `binary`, `varbinary` | upper-case hexadecimal digits |
//! | the `text` and `blob` families, `json`, spatial types, `vector` | SHA-256 of the bytes (text: UTF-8) |
//! | `list` | SHA-256 of its JSON, or of the texts of its elements with `|` behind each |
//!
//! A large object is represented by its SHA-256, because the server cannot build strings larger than
//! `max_allowed_packet`: it returns NULL. The length before text makes the joined text unambiguous: only text
//! can contain `|`, `:` or `~`.
//!
//! Batches may come from a lake table, so their Arrow types may differ from the decoder's: integers may be
//! wider, decimals may be text, and so on. A value that cannot be printed as the column's type is an error.

use std::fmt::Write as _;
use std::io::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, Int8Type, Time64MicrosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt16Type, UInt32Type,
    UInt64Type, UInt8Type,
};
use arrow_array::{
    Array, ArrayRef, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray, UInt64Array,
};
use arrow_schema::{DataType, TimeUnit};
use sha2::{Digest, Sha256};

use crate::column::encode::{read_base64, read_hex, write_hex};
use crate::column::{Binaries, Decimals, TypeOptions};
use crate::double::write_double;
use crate::schema::ColumnSchema;

/// How a column type is written; the same split as `Shape` in `penstock.sources.mysql.verify.sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Number,
    Decimal,
    Float,
    Date,
    Datetime,
    Time,
    Text,
    Hex,
    Digest,
}

fn shape(column_type: &str) -> Option<Shape> {
    Some(match column_type {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "bit" | "year" | "boolean" => Shape::Number,
        "decimal" | "numeric" => Shape::Decimal,
        "float" | "double" => Shape::Float,
        "date" => Shape::Date,
        "datetime" | "timestamp" => Shape::Datetime,
        "time" => Shape::Time,
        "char" | "varchar" | "enum" | "set" | "inet4" | "inet6" | "uuid" | "interval" => Shape::Text,
        "binary" | "varbinary" => Shape::Hex,
        "tinytext" | "text" | "mediumtext" | "longtext" | "tinyblob" | "blob" | "mediumblob" | "longblob"
        | "json" | "list" | "geometry" | "vector" => Shape::Digest,
        _ => return None,
    })
}

/// What is needed of a column to write its text.
pub struct TextColumn<'a> {
    pub name: &'a str,
    /// The server's DATA_TYPE in lower case.
    pub column_type: &'a str,
    /// Fractional digits of `time`, `datetime`, `timestamp`.
    pub fsp: usize,
    /// The options of this column.
    pub options: TypeOptions,
    /// Of a list: what its elements are.
    pub element: Option<&'a ColumnSchema>,
}

type Printer = Box<dyn Fn(usize, &mut Vec<u8>)>;

/// Writes the canonical text of rows of one batch.
pub struct RowText {
    cells: Vec<(ArrayRef, Printer)>,
    rows: usize,
}

impl RowText {
    pub fn new(batch: &RecordBatch, columns: &[TextColumn<'_>]) -> Result<Self, String> {
        let mut cells = Vec::with_capacity(columns.len());
        for column in columns {
            let array = batch
                .column_by_name(column.name)
                .ok_or_else(|| format!("the batch has no column `{}`", column.name))?;
            let printer = printer(column, array).ok_or_else(|| {
                format!(
                    "column `{}` ({}) cannot be read from Arrow {}",
                    column.name,
                    column.column_type,
                    array.data_type()
                )
            })?;
            cells.push((array.clone(), printer));
        }
        Ok(Self { cells, rows: batch.num_rows() })
    }

    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        for (number, (array, printer)) in self.cells.iter().enumerate() {
            if number > 0 {
                out.push(b'|');
            }
            if array.is_null(row) {
                out.push(b'~');
            } else {
                printer(row, out);
            }
        }
    }

    /// The first 60 bits of the SHA-256 of each row's text.
    pub fn hashes(&self) -> UInt64Array {
        let mut text = Vec::with_capacity(256);
        (0..self.rows)
            .map(|row| {
                text.clear();
                self.write(row, &mut text);
                let digest = Sha256::digest(&text);
                let mut head = [0u8; 8];
                head.copy_from_slice(&digest[..8]);
                Some(u64::from_be_bytes(head) >> 4)
            })
            .collect()
    }

    pub fn texts(&self) -> StringArray {
        let mut text = Vec::with_capacity(256);
        (0..self.rows)
            .map(|row| {
                text.clear();
                self.write(row, &mut text);
                Some(String::from_utf8_lossy(&text).into_owned())
            })
            .collect()
    }

    /// CRC32 of each row's text modulo `count`: the hash bucket of a key, as the server's CRC32() gives it.
    pub fn shares(&self, count: u32) -> Int64Array {
        let mut text = Vec::with_capacity(64);
        (0..self.rows)
            .map(|row| {
                text.clear();
                self.write(row, &mut text);
                Some(i64::from(crc32fast::hash(&text) % count.max(1)))
            })
            .collect()
    }

    /// The number that is each row's text divided by `width`, towards zero, as the server's DIV does. None if
    /// some row's text is no integer.
    pub fn ranges(&self, width: u64) -> Option<Int64Array> {
        let width = i128::from(width.max(1));
        let mut text = Vec::with_capacity(24);
        let mut numbers = Int64Array::builder(self.rows);
        for row in 0..self.rows {
            text.clear();
            self.write(row, &mut text);
            let number: i128 = std::str::from_utf8(&text).ok()?.parse().ok()?;
            numbers.append_value(i64::try_from(number / width).unwrap_or(i64::MAX));
        }
        Some(numbers.finish())
    }
}

fn printer(column: &TextColumn<'_>, array: &ArrayRef) -> Option<Printer> {
    let fsp = column.fsp;
    if let (Some(element), Some(lists)) = (column.element, array.as_list_opt::<i32>()) {
        return list(element, column.options, lists);
    }
    match shape(column.column_type)? {
        Shape::Number => number(array).or_else(|| plain_text(array)),
        Shape::Decimal if column.options.decimal == Decimals::Double => float(array),
        Shape::Decimal => number(array).or_else(|| decimal(array)).or_else(|| plain_text(array)),
        Shape::Float => float(array),
        Shape::Date => date(array).or_else(|| plain_text(array)),
        Shape::Datetime => datetime(array, fsp).or_else(|| plain_text(array)),
        Shape::Time => time(array, fsp).or_else(|| plain_text(array)),
        Shape::Text => counted_text(array),
        Shape::Hex => decoded(column, array, |value, out| write_hex(value, 0, out)),
        Shape::Digest => decoded(column, array, digest),
    }
}

fn digest(value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    write_hex(&Sha256::digest(value), 0, out);
    out[start..].make_ascii_lowercase();
}

/// A list is the digest of its elements' texts.
fn list(element: &ColumnSchema, options: TypeOptions, lists: &ListArray) -> Option<Printer> {
    let column = TextColumn {
        name: &element.name,
        column_type: &element.kind,
        fsp: element.fsp.unwrap_or(0).into(),
        options,
        element: None,
    };
    let (lists, printer) = (lists.clone(), printer(&column, lists.values())?);
    Some(Box::new(move |row, out| {
        let (ends, mut text) = (lists.value_offsets(), Vec::new());
        for index in ends[row] as usize..ends[row + 1] as usize {
            match lists.values().is_null(index) {
                true => text.push(b'~'),
                false => printer(index, &mut text),
            }
            text.push(b'|');
        }
        digest(&text, out);
    }))
}

/// The bytes of a value that `TypeOptions::binary` made text.
fn decoded(
    column: &TextColumn<'_>,
    array: &ArrayRef,
    write: impl Fn(&[u8], &mut Vec<u8>) + 'static,
) -> Option<Printer> {
    let is_binary = column.column_type.ends_with("blob") || shape(column.column_type)? == Shape::Hex;
    let read = match column.options.binary {
        Binaries::Hex if is_binary => read_hex,
        Binaries::Base64 if is_binary => read_base64,
        _ => return bytes(array, write),
    };
    // Text in another form was not written by us: it differs from every value.
    bytes(array, move |value, out| match read(value) {
        Some(value) => write(&value, out),
        None => out.push(b'?'),
    })
}

fn show<T: std::fmt::Display>(value: T, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{value}");
}

fn integers<T>(array: &ArrayRef) -> Option<Printer>
where
    T: ArrowPrimitiveType,
    T::Native: std::fmt::Display,
{
    let array: PrimitiveArray<T> = array.as_primitive_opt::<T>()?.clone();
    Some(Box::new(move |row, out| show(array.value(row), out)))
}

fn number(array: &ArrayRef) -> Option<Printer> {
    match array.data_type() {
        DataType::Int8 => integers::<Int8Type>(array),
        DataType::Int16 => integers::<Int16Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::UInt8 => integers::<UInt8Type>(array),
        DataType::UInt16 => integers::<UInt16Type>(array),
        DataType::UInt32 => integers::<UInt32Type>(array),
        DataType::UInt64 => integers::<UInt64Type>(array),
        DataType::Decimal128(_, 0) => integers::<Decimal128Type>(array),
        DataType::Boolean => {
            let array = array.as_boolean_opt()?.clone();
            Some(Box::new(move |row, out| out.push(if array.value(row) { b'1' } else { b'0' })))
        }
        // BIT: its bytes, the most significant one first.
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            bytes(array, |value, out| {
                let number = value.iter().fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
                show(number, out);
            })
        }
        _ => None,
    }
}

fn decimal(array: &ArrayRef) -> Option<Printer> {
    let DataType::Decimal128(_, scale) = array.data_type() else { return None };
    let scale = usize::try_from(*scale).ok()?;
    let array = array.as_primitive_opt::<Decimal128Type>()?.clone();
    Some(Box::new(move |row, out| {
        let value = array.value(row);
        let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        if value < 0 {
            out.push(b'-');
        }
        out.extend_from_slice(whole.as_bytes());
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    }))
}

/// A negative zero is a zero, because the server's expression adds `0e0`.
fn float(array: &ArrayRef) -> Option<Printer> {
    match array.data_type() {
        DataType::Float32 => {
            let array = array.as_primitive_opt::<Float32Type>()?.clone();
            Some(Box::new(move |row, out| write_double(f64::from(array.value(row)) + 0.0, out)))
        }
        DataType::Float64 => {
            let array = array.as_primitive_opt::<Float64Type>()?.clone();
            Some(Box::new(move |row, out| write_double(array.value(row) + 0.0, out)))
        }
        _ => None,
    }
}

/// Year, month and day of a day number (0: 1970-01-01) in the proleptic Gregorian calendar. Years are counted
/// from March, so that the leap day is the last day. 400 years have 146,097 days.
pub(crate) fn civil(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil(days);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
}

fn write_fraction(micros: i64, fsp: usize, out: &mut Vec<u8>) {
    if fsp > 0 {
        let mut digits = String::with_capacity(6);
        let _ = write!(digits, "{micros:06}");
        out.push(b'.');
        out.extend_from_slice(&digits.as_bytes()[..fsp.min(6)]);
    }
}

pub(crate) fn write_datetime(micros: i64, fsp: usize, out: &mut Vec<u8>) {
    const DAY: i64 = 86_400_000_000;
    write_date(micros.div_euclid(DAY), out);
    let rest = micros.rem_euclid(DAY);
    let seconds = rest / 1_000_000;
    let _ = write!(out, " {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    write_fraction(rest % 1_000_000, fsp, out);
}

pub(crate) fn write_time(micros: i64, fsp: usize, out: &mut Vec<u8>) {
    if micros < 0 {
        out.push(b'-');
    }
    let micros = micros.unsigned_abs() as i64;
    let seconds = micros / 1_000_000;
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    write_fraction(micros % 1_000_000, fsp, out);
}

fn date(array: &ArrayRef) -> Option<Printer> {
    let array = array.as_primitive_opt::<Date32Type>()?.clone();
    Some(Box::new(move |row, out| write_date(i64::from(array.value(row)), out)))
}

fn datetime(array: &ArrayRef, fsp: usize) -> Option<Printer> {
    fn with<T: ArrowPrimitiveType<Native = i64>>(
        array: &ArrayRef,
        fsp: usize,
        micros: impl Fn(i64) -> i64 + 'static,
    ) -> Option<Printer> {
        let array = array.as_primitive_opt::<T>()?.clone();
        Some(Box::new(move |row, out| write_datetime(micros(array.value(row)), fsp, out)))
    }
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            with::<TimestampMicrosecondType>(array, fsp, |value| value)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            with::<TimestampMillisecondType>(array, fsp, |value| value.saturating_mul(1_000))
        }
        DataType::Timestamp(TimeUnit::Second, _) => {
            with::<TimestampSecondType>(array, fsp, |value| value.saturating_mul(1_000_000))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            with::<TimestampNanosecondType>(array, fsp, |value| value.div_euclid(1_000))
        }
        _ => None,
    }
}

fn time(array: &ArrayRef, fsp: usize) -> Option<Printer> {
    fn with<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef, fsp: usize) -> Option<Printer> {
        let array = array.as_primitive_opt::<T>()?.clone();
        Some(Box::new(move |row, out| write_time(array.value(row), fsp, out)))
    }
    match array.data_type() {
        DataType::Int64 => with::<Int64Type>(array, fsp),
        DataType::Duration(TimeUnit::Microsecond) => with::<DurationMicrosecondType>(array, fsp),
        DataType::Time64(TimeUnit::Microsecond) => with::<Time64MicrosecondType>(array, fsp),
        _ => None,
    }
}

fn plain_text(array: &ArrayRef) -> Option<Printer> {
    matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8)
        .then(|| bytes(array, |value, out| out.extend_from_slice(value)))
        .flatten()
}

fn counted_text(array: &ArrayRef) -> Option<Printer> {
    bytes(array, |value, out| {
        show(value.len(), out);
        out.push(b':');
        out.extend_from_slice(value);
    })
}

/// The bytes of a text or binary value, whichever of Arrow's layouts holds them.
fn bytes(array: &ArrayRef, write: impl Fn(&[u8], &mut Vec<u8>) + 'static) -> Option<Printer> {
    match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string_opt::<i32>()?.clone();
            Some(Box::new(move |row, out| write(array.value(row).as_bytes(), out)))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string_opt::<i64>()?.clone();
            Some(Box::new(move |row, out| write(array.value(row).as_bytes(), out)))
        }
        DataType::Binary => {
            let array = array.as_binary_opt::<i32>()?.clone();
            Some(Box::new(move |row, out| write(array.value(row), out)))
        }
        DataType::LargeBinary => {
            let array = array.as_binary_opt::<i64>()?.clone();
            Some(Box::new(move |row, out| write(array.value(row), out)))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary_opt()?.clone();
            Some(Box::new(move |row, out| write(array.value(row), out)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn days_are_dates_of_the_gregorian_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(-719_528), (0, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(2_932_896), (9999, 12, 31));
    }

    #[test]
    fn times_keep_sign_hours_beyond_a_day_and_fraction() {
        assert_eq!(text(|out| write_time(-3_020_399_000_000, 0, out)), "-838:59:59");
        assert_eq!(text(|out| write_time(-500_000, 2, out)), "-00:00:00.50");
        assert_eq!(text(|out| write_datetime(-1, 6, out)), "1969-12-31 23:59:59.999999");
    }
}
