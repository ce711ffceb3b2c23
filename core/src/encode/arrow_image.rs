//! Values of Arrow batches as values of row images, so that every format writes rows that were read by SELECT
//! as it writes rows of the log.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, BinaryArray, BooleanArray, ListArray, PrimitiveArray, StringArray};
use arrow_schema::{DataType, TimeUnit};

use super::columns::{column, Column};
use super::image::Place;
use crate::charset::Charset;
use crate::decimal;
use crate::error::ValueError;
use crate::list::Written;
use crate::schema::{ColumnSchema, ColumnType};
use crate::table_map::MapColumn;
use crate::temporal::{Date, DateTime, Instant, Time};
use crate::value_forms::{
    append_bytes, append_date, append_datetime, append_network, append_open, append_prefixed, append_time,
    ZERO_DATE,
};
use crate::wire::{neutral, open_form, WireType};

/// A column in images made from Arrow. Texts are UTF-8 there.
pub fn arrow_column(of_schema: &ColumnSchema) -> std::result::Result<(Column, MapColumn), String> {
    let kind = of_schema.column_type()?;
    let of_map = MapColumn {
        wire: open_form(&kind),
        nullable: of_schema.nullable,
        unsigned: None,
        name: Some(of_schema.name.clone()),
        collation: None,
        labels: None,
        geometry: None,
        visible: None,
        element: None,
        neutral: neutral(&kind),
    };
    let mut column = column(of_schema, &of_map)?;
    let element = column.element.as_mut().map(|element| &mut element.kind);
    for kind in std::iter::once(&mut column.kind).chain(element) {
        if let ColumnType::Text { charset, .. } = kind {
            *charset = Charset::Utf8;
        }
    }
    Ok((column, of_map))
}

/// One column of a batch.
pub enum Values<'a> {
    Bool(&'a BooleanArray),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Decimal(&'a PrimitiveArray<Decimal128Type>),
    Float(&'a PrimitiveArray<Float32Type>),
    Double(&'a PrimitiveArray<Float64Type>),
    Date(&'a PrimitiveArray<Date32Type>),
    Micros(&'a PrimitiveArray<TimestampMicrosecondType>),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    List(&'a ListArray, Box<Self>),
}

type Result<T> = std::result::Result<T, ValueError>;

impl<'a> Values<'a> {
    /// None: no column of a table has this type.
    pub fn of(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean()),
            DataType::Int32 => Self::Int32(array.as_primitive()),
            DataType::Int64 => Self::Int64(array.as_primitive()),
            DataType::Decimal128(..) => Self::Decimal(array.as_primitive()),
            DataType::Float32 => Self::Float(array.as_primitive()),
            DataType::Float64 => Self::Double(array.as_primitive()),
            DataType::Date32 => Self::Date(array.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Self::Micros(array.as_primitive()),
            DataType::Utf8 => Self::Text(array.as_string()),
            DataType::Binary => Self::Bytes(array.as_binary()),
            DataType::List(_) => {
                let lists: &ListArray = array.as_list();
                Self::List(lists, Box::new(Self::of(lists.values())?))
            }
            _ => return None,
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Bool(array) => array.is_null(row),
            Self::Int32(array) => array.is_null(row),
            Self::Int64(array) => array.is_null(row),
            Self::Decimal(array) => array.is_null(row),
            Self::Float(array) => array.is_null(row),
            Self::Double(array) => array.is_null(row),
            Self::Date(array) => array.is_null(row),
            Self::Micros(array) => array.is_null(row),
            Self::Text(array) => array.is_null(row),
            Self::Bytes(array) => array.is_null(row),
            Self::List(array, _) => array.is_null(row),
        }
    }

    /// A whole number. Layouts have them in three types, and by option as text.
    fn integer(&self, row: usize) -> Option<i128> {
        Some(match self {
            Self::Bool(array) => array.value(row).into(),
            Self::Int32(array) => array.value(row).into(),
            Self::Int64(array) => array.value(row).into(),
            Self::Decimal(array) if array.scale() == 0 => array.value(row),
            Self::Text(array) => array.value(row).parse().ok()?,
            _ => return None,
        })
    }

    fn text(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Text(array) => Some(array.value(row)),
            _ => None,
        }
    }

    fn bytes(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Text(array) => Some(array.value(row).as_bytes()),
            Self::Bytes(array) => Some(array.value(row)),
            _ => None,
        }
    }

    fn date(&self, row: usize) -> Option<Date> {
        match self {
            Self::Date(array) => Some(Date::from_days(array.value(row))),
            _ => Date::parse(self.text(row)?.as_bytes()),
        }
    }

    fn datetime(&self, row: usize) -> Option<DateTime> {
        match self {
            Self::Micros(array) => Some(DateTime::from_micros(array.value(row))),
            _ => DateTime::parse(self.text(row)?.as_bytes()),
        }
    }

    fn timestamp(&self, row: usize) -> Option<Instant> {
        match self {
            Self::Micros(array) => Some(Instant::Micros(array.value(row))),
            _ => match DateTime::parse(self.text(row)?.as_bytes())? {
                value if value.date == Date::default() => Some(Instant::Zero),
                value => value.micros_since_1970().map(Instant::Micros),
            },
        }
    }

    fn time(&self, row: usize) -> Option<Time> {
        match self {
            Self::Int64(array) => Time::from_micros(array.value(row)),
            _ => Time::parse(self.text(row)?.as_bytes()),
        }
    }
}

/// Numbers of the labels of one column, from 1.
pub type Labels = HashMap<String, u64>;

pub fn labels_of(kind: &ColumnType) -> Labels {
    match kind {
        ColumnType::Enum { labels, .. } | ColumnType::Set { labels, .. } => {
            labels.iter().cloned().zip(1..).collect()
        }
        _ => Labels::new(),
    }
}

/// Appends a value in the form of the format `rows`, and returns its place.
pub fn append(
    column: &Column,
    labels: &Labels,
    values: &Values<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<Place> {
    let start = out.len() as u32;
    let is_open = matches!(open_form(&column.kind), WireType::Open(_));
    if values.is_null(row) {
        // The zero date, which became null on its way (`ZeroDates::Null`).
        let zeros = match column.kind {
            _ if column.schema.nullable => 0,
            ColumnType::Date => 3,
            ColumnType::DateTime { fsp } => 5 + fsp.div_ceil(2),
            ColumnType::Timestamp { .. } => {
                out.push(8);
                out.extend_from_slice(&ZERO_DATE.to_le_bytes());
                return Ok(Place::Value { start, end: out.len() as u32 });
            }
            _ => 0,
        };
        if zeros == 0 {
            return Ok(Place::Null);
        }
        out.push(zeros);
        out.resize(out.len() + usize::from(zeros), 0);
        return Ok(Place::Value { start, end: out.len() as u32 });
    }
    let appended = match is_open {
        true => append_open(
            out,
            |out| append_value(column, labels, values, row, out).ok_or(()),
            |out| {
                let text = values.text(row).filter(|text| is_extreme(text));
                out.extend_from_slice(text.unwrap_or_default().as_bytes());
                Ok(text.is_some())
            },
        ),
        false => append_value(column, labels, values, row, out).ok_or(()),
    };
    if appended.is_err() {
        return Err(unfit(column));
    }
    Ok(Place::Value { start, end: out.len() as u32 })
}

/// Whether it is the text of a date or number of `ValueSink::extreme`.
fn is_extreme(text: &str) -> bool {
    let is_far = text.ends_with(" BC") || text.find('-').is_some_and(|at| at > 4);
    is_far || matches!(text, "infinity" | "-infinity" | "NaN" | "Infinity" | "-Infinity")
}

#[cold]
fn unfit(column: &Column) -> ValueError {
    ValueError::new(format!(
        "a value that is not one of type {}, or a type option that loses values (decimal: double, binary: \
         base64 or hex, tinyint1: boolean)",
        column.schema.kind
    ))
}

/// None: the value does not fit the column.
fn append_value(
    column: &Column,
    labels: &Labels,
    values: &Values<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    match &column.kind {
        ColumnType::Integer { width, unsigned } => {
            // A boolean is not the number that it was.
            let value = (!matches!(values, Values::Bool(_))).then(|| values.integer(row)).flatten()?;
            let bits = 8 * u32::from(*width);
            let (least, most) = match unsigned {
                true => (0, (1_i128 << bits) - 1),
                false => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
            };
            if !(least..=most).contains(&value) {
                return None;
            }
            out.extend_from_slice(&value.to_le_bytes()[..usize::from(*width)]);
        }
        ColumnType::Decimal { precision, scale } => match values {
            Values::Decimal(array) if array.scale() == *scale as i8 => {
                let value = array.value(row);
                decimal::write_image(value < 0, value.unsigned_abs(), *precision, *scale, out)?;
            }
            _ => decimal::write_image_of_text(values.text(row)?.as_bytes(), *precision, *scale, out)?,
        },
        ColumnType::Numeric => match values {
            Values::Decimal(array) => append_bytes(array.value_as_string(row).as_bytes(), out)?,
            _ => append_bytes(values.text(row)?.as_bytes(), out)?,
        },
        ColumnType::Boolean => match values.integer(row)? {
            value @ (0 | 1) => out.push(value as u8),
            _ => return None,
        },
        ColumnType::Float => match values {
            Values::Float(array) => out.extend_from_slice(&array.value(row).to_le_bytes()),
            _ => return None,
        },
        ColumnType::Double => match values {
            Values::Double(array) => out.extend_from_slice(&array.value(row).to_le_bytes()),
            _ => return None,
        },
        ColumnType::Bit { bits } => {
            let bytes = u64::try_from(values.integer(row)?).ok()?.to_be_bytes();
            out.extend_from_slice(&bytes[8 - usize::from(*bits).div_ceil(8).min(8)..]);
        }
        ColumnType::Year { short } => {
            let year = values.integer(row)?;
            out.push(if *short || year == 0 {
                u8::try_from(year).ok()?
            } else {
                u8::try_from(year - 1900).ok()?
            });
        }
        ColumnType::Date => append_date(values.date(row)?, out),
        ColumnType::DateTime { fsp } => append_datetime(values.datetime(row)?, *fsp, out),
        ColumnType::Timestamp { .. } => {
            let micros = match values.timestamp(row)? {
                Instant::Zero => ZERO_DATE,
                Instant::Micros(micros) => micros,
            };
            out.extend_from_slice(&micros.to_le_bytes());
        }
        ColumnType::Time { fsp } => append_time(values.time(row)?, *fsp, out),
        ColumnType::Enum { .. } => {
            let label = values.text(row)?;
            let number = labels.get(label).copied().or((label.is_empty()).then_some(0))?;
            out.extend_from_slice(&(number as u16).to_le_bytes());
        }
        ColumnType::Set { .. } => {
            let mut bits = 0_u64;
            // An empty label at the beginning does not show, so it counts as missing.
            for (index, label) in values.text(row)?.split(',').enumerate() {
                if index > 0 || !label.is_empty() {
                    bits |= 1 << (labels.get(label)? - 1);
                }
            }
            out.extend_from_slice(&bits.to_le_bytes());
        }
        ColumnType::Network(network) => {
            append_prefixed(out, |out| append_network(*network, values.text(row)?, out))?;
        }
        ColumnType::Text { .. } | ColumnType::Interval => append_bytes(values.text(row)?.as_bytes(), out)?,
        ColumnType::Binary { .. } | ColumnType::Geometry | ColumnType::Vector => match values {
            Values::Bytes(array) => append_bytes(array.value(row), out)?,
            _ => return None,
        },
        ColumnType::Json => append_bytes(values.bytes(row)?, out)?,
        ColumnType::List(_) => {
            let (Values::List(lists, elements), Some(element)) = (values, &column.element) else {
                return None;
            };
            let ends = lists.value_offsets();
            let mut list = Written::default();
            for index in ends[row] as usize..ends[row + 1] as usize {
                match elements.is_null(index) {
                    true => list.null(),
                    false => append_value(element, labels, elements, index, list.element())?,
                }
            }
            list.finish(out)?;
        }
    }
    Some(())
}
