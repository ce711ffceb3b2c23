//! Reads values as the server sent them. The only reader of the types in `wire::Sent`: whatever takes values
//! is a `ValueSink`.

use super::binary::{bool_of, date_of, i16_of, i32_of, i64_of, jsonb_of, moment_of, time_of, wrong};
use super::numeric::{self, parsed, Numeric};
use super::shown;
use super::types::PgType;
use crate::cursor::Cursor;
use crate::decimal::parse_text;
use crate::error::{Result, ValueError};
use crate::network::Network;
use crate::temporal::{Date, DateTime, Instant, Time};
use crate::value_forms::append_network;
use crate::value_sink::{Taken, ValueSink};
use crate::wire::Sent;

/// `YYYY-MM-DD`.
const DATE_BYTES: usize = 10;
/// With a time behind it, and with up to six digits of a fraction.
const MOMENT_BYTES: std::ops::RangeInclusive<usize> = 19..=26;
/// No date or time of the server has so many.
const EXTREME_BYTES: usize = 255;

/// Whether the value at the cursor is text, and its bytes.
#[inline(always)]
pub fn take<'a>(image: &mut Cursor<'a>) -> Result<(bool, &'a [u8])> {
    let [kind, length @ ..] = image.chunk::<5>("value")?;
    Ok((*kind == b't', image.take(u32::from_be_bytes(*length) as usize, "value")?))
}

/// A function of its own, as inlined it makes the loops slower that skip values of other sources.
#[inline(never)]
pub fn skip(image: &mut Cursor<'_>) -> Result<()> {
    take(image).map(drop)
}

/// Sends a value from its binary form.
#[inline(always)]
pub fn binary<V: ValueSink>(of: Sent, bytes: &[u8], to: &mut V) -> Taken {
    match of {
        Sent::Bool => to.boolean(bool_of(bytes)?),
        Sent::Int2 => to.int(i16_of(bytes, "a smallint")?.into()),
        Sent::Int4 => to.int(i32_of(bytes, "an integer")?.into()),
        Sent::Int8 => to.int(i64_of(bytes, "a bigint")?),
        Sent::Oid => to.int((i32_of(bytes, "an oid")? as u32).into()),
        Sent::Xid8 => to.number((i64_of(bytes, "an xid8")? as u64).into(), 20, 0),
        Sent::Float4 => to.float(f32::from_bits(i32_of(bytes, "a real")? as u32)),
        Sent::Float8 => to.double(f64::from_bits(i64_of(bytes, "a double precision")? as u64)),
        Sent::Numeric { precision, scale } => {
            let number = Numeric::parse(bytes)?;
            match number.unscaled(scale) {
                Some(unscaled) => to.number(unscaled, precision, scale),
                None if number.is_special() => send_extreme(&PgType::Numeric, bytes, to),
                None => Err(too_long(precision, scale)),
            }
        }
        Sent::Money { precision, scale } => to.number(i64_of(bytes, "money")?.into(), precision, scale),
        Sent::Text | Sent::Bytea => to.bytes(bytes),
        Sent::Json => to.json_text(bytes),
        Sent::Jsonb => to.json_text(jsonb_of(bytes)?),
        Sent::Date => match date_of(bytes)? {
            Some(days) => to.days(days),
            None => send_extreme(&PgType::Date, bytes, to),
        },
        Sent::Timestamp { .. } => match moment_of(bytes)? {
            Some(micros) => to.micros(micros),
            None => send_extreme(&PgType::Timestamp, bytes, to),
        },
        Sent::TimestampTz => match moment_of(bytes)? {
            Some(micros) => to.timestamp(Instant::Micros(micros)),
            None => send_extreme(&PgType::TimestampTz, bytes, to),
        },
        Sent::Time { .. } => to.time(time_of(bytes)?),
        Sent::Uuid => {
            let mut plain = Vec::with_capacity(16);
            Network::append_uuid(bytes.try_into().map_err(|_| wrong("a uuid"))?, &mut plain);
            to.bytes(&plain)
        }
    }
}

/// A value that the type's usual form cannot have.
#[cold]
fn send_extreme<V: ValueSink>(kind: &PgType, bytes: &[u8], to: &mut V) -> Taken {
    let mut text = Vec::new();
    shown::write(kind, bytes, &mut text)?;
    to.extreme(&text)
}

#[cold]
fn too_long(precision: u8, scale: u8) -> ValueError {
    ValueError::new(format!("a number that is no DECIMAL({precision},{scale})"))
}

/// Sends a value from its text.
#[inline(never)]
pub fn text<V: ValueSink>(of: Sent, text: &[u8], to: &mut V) -> Taken {
    match of {
        Sent::Bool => to.boolean(match text {
            b"t" => true,
            b"f" => false,
            _ => return Err(wrong("a boolean")),
        }),
        Sent::Int2 => to.int(parsed::<i16>(text)?.into()),
        Sent::Int4 => to.int(parsed::<i32>(text)?.into()),
        Sent::Int8 => to.int(parsed(text)?),
        Sent::Oid => to.int(parsed::<u32>(text)?.into()),
        Sent::Xid8 => to.number(parsed::<u64>(text)?.into(), 20, 0),
        Sent::Float4 => to.float(parsed(text)?),
        Sent::Float8 => to.double(parsed(text)?),
        Sent::Numeric { .. } if matches!(text, b"NaN" | b"Infinity" | b"-Infinity") => to.extreme(text),
        Sent::Numeric { precision, scale } => {
            to.number(parse_text(text, precision, scale)?, precision, scale)
        }
        Sent::Money { precision, scale } => to.number(numeric::money(text)?, precision, scale),
        Sent::Text => to.bytes(text),
        Sent::Bytea => to.bytes(&hexadecimal(text)?),
        Sent::Json | Sent::Jsonb => to.json_text(text),
        // Those that are not read are infinite, with BC behind them, or with more digits of the year.
        Sent::Date => match Date::parse(text).filter(|_| text.len() == DATE_BYTES) {
            Some(date) => to.date(date),
            None => to.extreme(shorter(text)?),
        },
        Sent::Timestamp { .. } => match moment(text) {
            Some(moment) => to.datetime(moment),
            None => to.extreme(shorter(text)?),
        },
        Sent::TimestampTz => {
            match text.strip_suffix(b"+00").and_then(moment).and_then(DateTime::micros_since_1970) {
                Some(micros) => to.timestamp(Instant::Micros(micros)),
                None => to.extreme(shorter(text)?),
            }
        }
        Sent::Time { .. } => to.time(Time::parse(text).ok_or_else(|| wrong("a time"))?),
        Sent::Uuid => {
            let mut plain = Vec::with_capacity(16);
            let text = std::str::from_utf8(text).map_err(|_| wrong("a uuid"))?;
            append_network(Network::Uuid, text, &mut plain).ok_or_else(|| wrong("a uuid"))?;
            to.bytes(&plain)
        }
    }
}

fn moment(text: &[u8]) -> Option<DateTime> {
    DateTime::parse(text).filter(|_| MOMENT_BYTES.contains(&text.len()))
}

/// What may be a date or time.
fn shorter(text: &[u8]) -> std::result::Result<&[u8], ValueError> {
    (text.len() < EXTREME_BYTES).then_some(text).ok_or_else(|| wrong("a date or time"))
}

fn hexadecimal(text: &[u8]) -> std::result::Result<Vec<u8>, ValueError> {
    let digits = text.strip_prefix(b"\\x").filter(|digits| digits.len() % 2 == 0);
    let digits = digits.ok_or_else(|| wrong("a bytea"))?;
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    for pair in digits.chunks_exact(2) {
        let (high, low) = (char::from(pair[0]).to_digit(16), char::from(pair[1]).to_digit(16));
        let (Some(high), Some(low)) = (high, low) else { return Err(wrong("a bytea")) };
        bytes.push((high << 4 | low) as u8);
    }
    Ok(bytes)
}
