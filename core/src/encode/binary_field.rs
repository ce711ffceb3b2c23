//! What Avro and Protobuf have before the value of a column.

use super::binary::{write_tag, Target, FIXED_32, FIXED_64, LENGTH, VARINT};
use super::columns::Column;
use super::debezium_options::{BigintUnsigned, Decimals, Options, TimePrecision};
use crate::schema::ColumnType;

/// What is before the value of a column: the branch of Avro's union, or the tag of Protobuf's field.
pub struct Field {
    pub(super) head: [u8; 4],
    pub(super) length: u8,
    pub(super) nullable: bool,
    /// Of a list: what is before its elements.
    pub(super) element: Option<Box<Self>>,
}

impl Field {
    /// `position`: of the column in its record.
    pub fn of<T: Target>(options: &Options, column: &Column, position: usize) -> Self {
        let mut bytes = Vec::new();
        if T::PROTOBUF {
            write_tag(position + 1, tag_kind(options, column), &mut bytes);
        } else if column.schema.nullable {
            T::integer(1, &mut bytes);
        }
        let mut head = [0; 4];
        head[..bytes.len()].copy_from_slice(&bytes);
        let element = column.element.as_ref().map(|element| Box::new(Self::of::<T>(options, element, 0)));
        Self { head, length: bytes.len() as u8, nullable: column.schema.nullable, element }
    }
}

/// How Protobuf writes the values of a column.
fn tag_kind(options: &Options, column: &Column) -> u8 {
    let precise = options.bigint_unsigned_handling_mode == BigintUnsigned::Precise;
    match column.kind {
        ColumnType::Integer { width: 8, unsigned: true } if precise => LENGTH,
        ColumnType::Decimal { .. } | ColumnType::Numeric => of_decimals(options),
        ColumnType::Integer { .. }
        | ColumnType::Year { .. }
        | ColumnType::Boolean
        | ColumnType::Bit { bits: 1 } => VARINT,
        ColumnType::Float => FIXED_32,
        ColumnType::Double => FIXED_64,
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Time { .. }
            if options.time_precision_mode != TimePrecision::Isostring =>
        {
            VARINT
        }
        _ => LENGTH,
    }
}

fn of_decimals(options: &Options) -> u8 {
    if options.decimal_handling_mode == Decimals::Double {
        FIXED_64
    } else {
        LENGTH
    }
}
