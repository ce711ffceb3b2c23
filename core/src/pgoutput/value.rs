//! Values of PostgreSQL in the forms that values have in images (`typed_rows::form`).

use super::array;
use super::binary::{bool_of, date_of, extreme, i16_of, i32_of, i64_of, jsonb_of, moment_of, time_of, wrong};
use super::numeric::{money, parsed, Numeric};
use super::shown;
use super::types::{PgType, MONEY_SCALE};
use crate::decimal::{write_image, write_image_of_text};
use crate::error::ValueError;
use crate::list::append_document;
use crate::network::Network;
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Time};
use crate::value_forms::{
    append_bytes, append_date, append_datetime, append_network, append_open, append_prefixed, append_time,
};
use crate::wire::{open_form, WireType};

/// How one column is written.
#[derive(Debug, Clone)]
pub struct Target {
    /// The type of the values, of a domain that of its base.
    pub kind: PgType,
    pub column: ColumnType,
}

#[cold]
fn unfit() -> ValueError {
    ValueError::new("a value that does not fit the column's type")
}

/// Appends a value that was sent in its binary form.
pub fn append_binary(to: &Target, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    let (kind, column) = (&to.kind, &to.column);
    match (open_form(column), kind) {
        (WireType::Open(_), kind) => append_open(
            out,
            |out| binary(kind, column, bytes, out),
            |out| Ok(is_extreme(kind, bytes)? && shown::write(kind, bytes, out).map(|()| true)?),
        ),
        (WireType::List, PgType::Array(of)) => {
            let start = out.len();
            binary(kind, column, bytes, out).or_else(|_| {
                // An element may be what its type in lists cannot have. Its text has it.
                out.truncate(start);
                append_document(out, |out| array::write_binary(of, bytes, out))
            })
        }
        _ => binary(kind, column, bytes, out),
    }
}

/// Whether it is a value that `binary` refuses, although it is one of this type.
#[cold]
fn is_extreme(kind: &PgType, bytes: &[u8]) -> Result<bool, ValueError> {
    Ok(match kind {
        PgType::Date => date_of(bytes).is_err() && bytes.len() == 4,
        PgType::Timestamp | PgType::TimestampTz => moment_of(bytes).is_err() && bytes.len() == 8,
        PgType::Numeric => Numeric::parse(bytes)?.is_special(),
        _ => false,
    })
}

fn binary(kind: &PgType, column: &ColumnType, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    use ColumnType as C;
    use PgType as P;
    match (kind, column) {
        (P::Bool, C::Boolean) => out.push(bool_of(bytes)?.into()),
        (P::Int2, C::Integer { width, .. }) => integer(i16_of(bytes, "a smallint")?.into(), *width, out)?,
        (P::Int4, C::Integer { width, .. }) => integer(i32_of(bytes, "an integer")?.into(), *width, out)?,
        (P::Int8, C::Integer { width, .. }) => integer(i64_of(bytes, "a bigint")?, *width, out)?,
        (P::Oid, C::Integer { width, .. }) => integer((i32_of(bytes, "an oid")? as u32).into(), *width, out)?,
        (P::Float4, C::Float) => out.extend_from_slice(&i32_of(bytes, "a real")?.to_le_bytes()),
        (P::Float8, C::Double) => out.extend_from_slice(&i64_of(bytes, "a double precision")?.to_le_bytes()),
        (P::Numeric, C::Decimal { precision, scale }) => {
            let number = Numeric::parse(bytes)?;
            if number.is_special() {
                return Err(ValueError::new("a number that is NaN or infinite, which a decimal cannot be"));
            }
            decimal(number.unscaled(*scale).ok_or_else(unfit)?, *precision, *scale, out)?;
        }
        (P::Xid8, C::Decimal { precision, scale: 0 }) => {
            decimal((i64_of(bytes, "an xid8")? as u64).into(), *precision, 0, out)?;
        }
        (P::Money, C::Decimal { precision, scale: MONEY_SCALE }) => {
            decimal(i64_of(bytes, "money")?.into(), *precision, MONEY_SCALE, out)?;
        }
        (P::Date, C::Date) => append_date(date_of(bytes)?, out),
        (P::Timestamp, C::DateTime { fsp }) => {
            append_datetime(DateTime::from_micros(moment_of(bytes)?), *fsp, out);
        }
        (P::TimestampTz, C::Timestamp { .. }) => out.extend_from_slice(&moment_of(bytes)?.to_le_bytes()),
        (P::Time, C::Time { fsp }) => append_time(time_of(bytes)?, *fsp, out),
        (P::Uuid, C::Network(Network::Uuid)) => {
            let plain = bytes.try_into().map_err(|_| wrong("a uuid"))?;
            written(out, |out| {
                Network::append_uuid(plain, out);
                Ok(())
            })?;
        }
        (P::Bytea, C::Binary { .. }) | (P::Json, C::Json) | (P::Text, C::Text { .. }) => {
            prefixed(bytes, out)?
        }
        (P::Jsonb, C::Json) => prefixed(jsonb_of(bytes)?, out)?,
        (P::Array(kind), C::Json) => written(out, |out| array::write_binary(kind, bytes, out))?,
        (P::Array(kind), C::List(column)) => {
            array::list_of_binary(kind, bytes, |bytes, out| binary(kind, column, bytes, out), out)?;
        }
        (kind, C::Text { .. } | C::Numeric | C::Interval) => {
            written(out, |out| shown::write(kind, bytes, out))?
        }
        _ => return Err(unfit()),
    }
    Ok(())
}

/// Appends a value that was sent as text.
pub fn append_text(to: &Target, text: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    match (&to.kind, &to.column) {
        (kind, column) if matches!(open_form(column), WireType::Open(_)) => append_open(
            out,
            |out| of_text(kind, column, text, out),
            |out| {
                let is_extreme = match kind {
                    PgType::Numeric => matches!(text, b"NaN" | b"Infinity" | b"-Infinity"),
                    PgType::Date | PgType::Timestamp | PgType::TimestampTz => {
                        text.len() < usize::from(u8::MAX)
                    }
                    _ => false,
                };
                out.extend_from_slice(if is_extreme { text } else { b"" });
                Ok(is_extreme)
            },
        ),
        (PgType::Array(kind), ColumnType::Json) => written(out, |out| array::write_text(kind, text, out)),
        (PgType::Array(kind), ColumnType::List(column)) => {
            let start = out.len();
            array::list_of_text(kind, text, |text, out| of_text(kind, column, text, out), out).or_else(|_| {
                out.truncate(start);
                append_document(out, |out| array::write_text(kind, text, out))
            })
        }
        (kind, column) => of_text(kind, column, text, out),
    }
}

fn of_text(kind: &PgType, column: &ColumnType, text: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    use ColumnType as C;
    use PgType as P;
    match (kind, column) {
        (P::Bool, C::Boolean) => out.push(match text {
            b"t" => 1,
            b"f" => 0,
            _ => return Err(wrong("a boolean")),
        }),
        (_, C::Integer { width, .. }) => integer(parsed(text)?, *width, out)?,
        (_, C::Float) => out.extend_from_slice(&parsed::<f32>(text)?.to_le_bytes()),
        (_, C::Double) => out.extend_from_slice(&parsed::<f64>(text)?.to_le_bytes()),
        (P::Numeric | P::Xid8, C::Decimal { precision, scale }) => {
            write_image_of_text(text, *precision, *scale, out).ok_or_else(unfit)?;
        }
        (P::Money, C::Decimal { precision, scale: MONEY_SCALE }) => {
            decimal(money(text)?, *precision, MONEY_SCALE, out)?;
        }
        (P::Date, C::Date) => append_date(day(text)?, out),
        (P::Timestamp, C::DateTime { fsp }) => append_datetime(moment(text)?, *fsp, out),
        (P::TimestampTz, C::Timestamp { .. }) => {
            let utc = text.strip_suffix(b"+00").ok_or_else(extreme)?;
            let micros = moment(utc)?.micros_since_1970().ok_or_else(extreme)?;
            out.extend_from_slice(&micros.to_le_bytes());
        }
        (P::Time, C::Time { fsp }) => {
            append_time(Time::parse(text).ok_or_else(|| wrong("a time"))?, *fsp, out)
        }
        (P::Uuid, C::Network(Network::Uuid)) => {
            let text = std::str::from_utf8(text).map_err(|_| wrong("a uuid"))?;
            append_prefixed(out, |out| append_network(Network::Uuid, text, out))
                .ok_or_else(|| wrong("a uuid"))?;
        }
        (P::Bytea, C::Binary { .. }) => written(out, |out| hexadecimal(text, out))?,
        (_, C::Json | C::Text { .. } | C::Numeric | C::Interval) => prefixed(text, out)?,
        _ => return Err(unfit()),
    }
    Ok(())
}

fn integer(value: i64, width: u8, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let width = usize::from(width);
    let bytes = value.to_le_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let fits = bytes[width..].iter().all(|byte| *byte == sign) && (bytes[width - 1] ^ sign) & 0x80 == 0;
    if !fits {
        return Err(unfit());
    }
    out.extend_from_slice(&bytes[..width]);
    Ok(())
}

fn decimal(value: i128, precision: u8, scale: u8, out: &mut Vec<u8>) -> Result<(), ValueError> {
    write_image(value < 0, value.unsigned_abs(), precision, scale, out).ok_or_else(unfit)
}

fn prefixed(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    append_bytes(bytes, out).ok_or_else(unfit)
}

/// Writes what `write` appends with its length before it.
fn written(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ValueError>,
) -> Result<(), ValueError> {
    let mut result = Ok(());
    append_prefixed(out, |out| {
        result = write(out);
        Some(())
    })
    .ok_or_else(unfit)?;
    result
}

fn day(text: &[u8]) -> Result<Date, ValueError> {
    if text.len() != 10 {
        return Err(extreme()); // infinite, with BC behind it, or with more digits of the year
    }
    Date::parse(text).ok_or_else(extreme)
}

fn moment(text: &[u8]) -> Result<DateTime, ValueError> {
    if !(19..=26).contains(&text.len()) {
        return Err(extreme());
    }
    DateTime::parse(text).ok_or_else(extreme)
}

fn hexadecimal(text: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    let digits =
        text.strip_prefix(b"\\x").filter(|digits| digits.len() % 2 == 0).ok_or_else(|| wrong("a bytea"))?;
    for pair in digits.chunks_exact(2) {
        let (high, low) = (char::from(pair[0]).to_digit(16), char::from(pair[1]).to_digit(16));
        let (Some(high), Some(low)) = (high, low) else { return Err(wrong("a bytea")) };
        out.push((high << 4 | low) as u8);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_the_same_list_unless_the_array_is_none() {
        let column = ColumnType::Integer { width: 4, unsigned: false };
        let of = ColumnType::List(Box::new(column.clone()));
        let to = Target { kind: PgType::of(1007), column: of };
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
        let (mut text, mut binary) = (Vec::new(), Vec::new());
        append_text(&to, b"{7,NULL,-1}", &mut text).unwrap();
        let bytes = numbers(&[1, 1, 23, 3, 1, 4, 7, u32::MAX, 4, u32::MAX]);
        append_binary(&to, &bytes, &mut binary).unwrap();
        assert_eq!(text, binary);
        let mut shown = Vec::new();
        crate::list::write_text(&column, &binary[4..], &mut shown).unwrap();
        assert_eq!(shown, b"[7,null,-1]");
        for (sent, document) in [("[0:1]={1,2}", "[1,2]"), ("{{1,2},{3,4}}", "[[1,2],[3,4]]")] {
            let mut out = Vec::new();
            append_text(&to, sent.as_bytes(), &mut out).unwrap();
            assert_eq!(&out[8..], document.as_bytes());
            assert!(crate::list::List::elements(&out[4..]).is_err());
        }
        let from_zero = numbers(&[1, 0, 23, 1, 0, 4, 7]);
        let mut out = Vec::new();
        append_binary(&to, &from_zero, &mut out).unwrap();
        assert_eq!(&out[8..], b"[7]");
    }
}
