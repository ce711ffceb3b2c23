//! The type mapping: which Arrow type a column has, and how its values are converted. It exists only here.
//! Rows of the log and of result sets are appended to the same builders, so a row has the same values
//! whichever way it came. `options` has the choices that users have. The default is:
//!
//! | MySQL | Arrow |
//! |---|---|
//! | tinyint … int, unsigned up to mediumint, year | int32 |
//! | int unsigned, bigint, bit(2…63) | int64 |
//! | bigint unsigned, bit(64) | decimal128(20, 0) |
//! | bit(1), boolean | bool |
//! | decimal(p, s) | decimal128(p, s) up to 38 digits, else utf8 with its exact text |
//! | numeric, interval | utf8 |
//! | float, double | float32, float64 |
//! | date, datetime, timestamp | date32, timestamp\[µs\], timestamp\[µs, UTC\]; utf8 if chosen |
//! | time | utf8, as SELECT prints it |
//! | char, varchar, text, enum, set, json, inet4, inet6, uuid | utf8 |
//! | binary, varbinary, blob, geometry, vector | binary |
//! | list | utf8 with its text, a JSON document; list with `Arrays::List` |

mod append;
pub mod encode;
mod finish;
mod key;
mod layout;
mod list;
mod number;
mod options;
mod sink;
mod walk;

use std::sync::Arc;

use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{DataType, Field, TimeUnit};

pub use key::{write_array_key, write_widened_key};
pub use layout::{
    added, arrow_schema, free_name, Layout, BASE, CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, PRESENT, SEQUENCE,
};
pub use options::{
    Arrays, BigintUnsigned, Binaries, Decimals, ExtremeDates, NotNumbers, Times, Tinyint1, TypeOptions,
    ZeroDates,
};
pub use walk::Walk;

use crate::json;
use crate::pool;
use crate::schema::{ColumnType, TableSchema};

/// Digits of numbers without a declared precision, where they are decimals (`numeric_scale`).
const NUMERIC_DIGITS: u8 = 38;

/// The Arrow type of a column. `options` are those of this column (`TypeOptions::of_column`).
pub fn arrow_type(kind: &ColumnType, options: TypeOptions) -> DataType {
    let text_dates = options.zero_dates == ZeroDates::Text || options.extreme_dates == ExtremeDates::Text;
    let text_numbers = options.not_numbers == NotNumbers::Text;
    match kind {
        ColumnType::Integer { width: 8, unsigned: true } => match options.bigint_unsigned {
            BigintUnsigned::Decimal => DataType::Decimal128(20, 0),
            BigintUnsigned::Long => DataType::Int64,
            BigintUnsigned::String => DataType::Utf8,
        },
        ColumnType::Bit { bits: 64 } => DataType::Decimal128(20, 0),
        ColumnType::Integer { width: 8, .. } | ColumnType::Integer { width: 4, unsigned: true } => {
            DataType::Int64
        }
        ColumnType::Integer { width: 1, unsigned: false } if options.tinyint1 == Tinyint1::Boolean => {
            DataType::Boolean
        }
        ColumnType::Integer { .. } | ColumnType::Year { .. } => DataType::Int32,
        ColumnType::Decimal { precision, scale } => match options.decimal {
            Decimals::Double => DataType::Float64,
            Decimals::Precise if *precision <= 38 && !text_numbers => {
                DataType::Decimal128(*precision, *scale as i8)
            }
            Decimals::Precise | Decimals::String => DataType::Utf8,
        },
        ColumnType::Numeric => match (options.decimal, options.numeric_scale) {
            (Decimals::Double, _) => DataType::Float64,
            (Decimals::Precise, Some(scale)) if !text_numbers => {
                DataType::Decimal128(NUMERIC_DIGITS, scale as i8)
            }
            _ => DataType::Utf8,
        },
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Float => DataType::Float32,
        ColumnType::Double => DataType::Float64,
        ColumnType::Bit { bits: 1 } => DataType::Boolean,
        ColumnType::Bit { .. } => DataType::Int64,
        ColumnType::Date if !text_dates => DataType::Date32,
        ColumnType::DateTime { .. } if !text_dates => DataType::Timestamp(TimeUnit::Microsecond, None),
        ColumnType::Timestamp { .. } if !text_dates => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        ColumnType::Time { .. } if options.time == Times::Micros => DataType::Int64,
        ColumnType::Binary { .. } if options.binary != Binaries::Bytes => DataType::Utf8,
        ColumnType::Binary { .. } | ColumnType::Geometry | ColumnType::Vector => DataType::Binary,
        ColumnType::List(element) if options.arrays == Arrays::List => {
            DataType::List(element_field(arrow_type(element, options)))
        }
        ColumnType::Date
        | ColumnType::DateTime { .. }
        | ColumnType::Timestamp { .. }
        | ColumnType::Time { .. }
        | ColumnType::Text { .. }
        | ColumnType::Enum { .. }
        | ColumnType::Set { .. }
        | ColumnType::Network(_)
        | ColumnType::Interval
        | ColumnType::List(_)
        | ColumnType::Json => DataType::Utf8,
    }
}

/// The elements of a list, which may be NULL. Their name is that of Spark and of Parquet.
fn element_field(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", kind, true))
}

/// Collects the values of one column for an Arrow array.
pub struct ColumnBuilder {
    kind: ColumnType,
    options: TypeOptions,
    json_style: json::Style,
    json_shapes: json::Shapes,
    storage: Storage,
    /// The rows that are null, in order. Rows that are not null cost nothing.
    nulls: Vec<u32>,
}

enum Storage {
    Bool(BooleanBufferBuilder),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, i8),
    Date(Vec<i32>),
    Timestamp(Vec<i64>, bool),
    /// Text in UTF-8. The bytes of utf8 columns are checked, and escaped if necessary, when the array is
    /// finished.
    Text(Bytes),
    Binary(Bytes),
    List(Box<Lists>),
}

/// Values of varying length: value i is from `ends[i]` to `ends[i + 1]`.
struct Bytes {
    values: Vec<u8>,
    ends: Vec<i32>,
}

/// The elements of list i are from `ends[i]` to `ends[i + 1]`.
struct Lists {
    ends: Vec<i32>,
    elements: ColumnBuilder,
}

impl Storage {
    fn empty(kind: &ColumnType, options: TypeOptions) -> Self {
        match &arrow_type(kind, options) {
            DataType::Boolean => Self::Bool(BooleanBufferBuilder::new(0)),
            DataType::Int32 => Self::Int32(Vec::new()),
            DataType::Int64 => Self::Int64(Vec::new()),
            DataType::Float32 => Self::Float32(Vec::new()),
            DataType::Float64 => Self::Float64(Vec::new()),
            DataType::Decimal128(precision, scale) => Self::Decimal(Vec::new(), *precision, *scale),
            DataType::Date32 => Self::Date(Vec::new()),
            DataType::Timestamp(_, zone) => Self::Timestamp(Vec::new(), zone.is_some()),
            DataType::Binary => Self::Binary(Bytes { values: Vec::new(), ends: vec![0] }),
            DataType::List(_) => match kind {
                ColumnType::List(element) => Self::List(Box::new(Lists::new(element, options))),
                _ => Self::Text(Bytes { values: Vec::new(), ends: vec![0] }),
            },
            _ => Self::Text(Bytes { values: Vec::new(), ends: vec![0] }),
        }
    }

    /// An empty storage of the same kind, with room in memory of earlier batches.
    fn with_room(&self, rows: usize, bytes: usize) -> Self {
        match self {
            Self::Bool(_) => Self::Bool(BooleanBufferBuilder::new(rows)),
            Self::Int32(_) => Self::Int32(pool::take(rows)),
            Self::Int64(_) => Self::Int64(pool::take(rows)),
            Self::Float32(_) => Self::Float32(pool::take(rows)),
            Self::Float64(_) => Self::Float64(pool::take(rows)),
            Self::Decimal(_, precision, scale) => Self::Decimal(pool::take(rows), *precision, *scale),
            Self::Date(_) => Self::Date(pool::take(rows)),
            Self::Timestamp(_, zoned) => Self::Timestamp(pool::take(rows), *zoned),
            Self::Text(_) => Self::Text(Bytes::with_room(rows, bytes)),
            Self::Binary(_) => Self::Binary(Bytes::with_room(rows, bytes)),
            Self::List(lists) => Self::List(Box::new(lists.with_room(rows))),
        }
    }
}

impl Bytes {
    fn with_room(rows: usize, bytes: usize) -> Self {
        let mut ends = pool::take(rows + 1);
        ends.push(0);
        Self { values: pool::take(bytes), ends }
    }

    fn get(&self, row: usize) -> &[u8] {
        &self.values[self.ends[row] as usize..self.ends[row + 1] as usize]
    }
}

impl ColumnBuilder {
    /// `options` are those of this column.
    pub fn new(kind: ColumnType, options: TypeOptions) -> Self {
        let storage = Storage::empty(&kind, options);
        Self {
            kind,
            options,
            json_style: json::Style::default(),
            json_shapes: json::Shapes::default(),
            storage,
            nulls: Vec::new(),
        }
    }

    /// A builder for the column at `position`. The error says what the schema lacks.
    pub fn of(table: &TableSchema, position: usize, options: TypeOptions) -> Result<Self, String> {
        Ok(Self::new(table.columns[position].column_type()?, options.of_column(table, position)))
    }

    /// Sets how the server that wrote the log prints JSON.
    pub fn set_json_style(&mut self, style: json::Style) {
        self.json_style = style;
    }

    pub fn kind(&self) -> &ColumnType {
        &self.kind
    }

    pub fn data_type(&self) -> DataType {
        arrow_type(&self.kind, self.options)
    }

    pub fn len(&self) -> usize {
        match &self.storage {
            Storage::Bool(values) => values.len(),
            Storage::Int32(values) | Storage::Date(values) => values.len(),
            Storage::Float32(values) => values.len(),
            Storage::Int64(values) | Storage::Timestamp(values, _) => values.len(),
            Storage::Float64(values) => values.len(),
            Storage::Decimal(values, ..) => values.len(),
            Storage::Text(bytes) | Storage::Binary(bytes) => bytes.ends.len() - 1,
            Storage::List(lists) => lists.ends.len() - 1,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes the values take.
    pub fn bytes(&self) -> usize {
        match &self.storage {
            Storage::Bool(values) => values.len() / 8,
            Storage::Int32(values) | Storage::Date(values) => values.len() * 4,
            Storage::Float32(values) => values.len() * 4,
            Storage::Int64(values) | Storage::Timestamp(values, _) => values.len() * 8,
            Storage::Float64(values) => values.len() * 8,
            Storage::Decimal(values, ..) => values.len() * 16,
            Storage::Text(bytes) | Storage::Binary(bytes) => bytes.values.len() + bytes.ends.len() * 4,
            Storage::List(lists) => lists.elements.bytes() + lists.ends.len() * 4,
        }
    }
}
