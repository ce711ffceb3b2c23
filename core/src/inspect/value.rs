//! One value of a row image as JSON.
//!
//! What the log does not say is not invented: without labels an enum is its number, without signedness a number is
//! signed, and bytes of unknown character set are text only if they are printable UTF-8.

use std::io::Write as _;

use crate::charset::Charset;
use crate::cursor::Cursor;
use crate::decimal::DecimalImage;
use crate::double::write_double;
use crate::error::Result;
use crate::table_map::MapColumn;
use crate::temporal::{Date, DateTime, Time};
use crate::wire::{Extent, WireType};

const BINARY: u16 = 63;

/// The bytes of the next value.
pub fn take_value<'a>(cursor: &mut Cursor<'a>, wire: WireType) -> Result<&'a [u8]> {
    match wire.extent() {
        Extent::Fixed(width) => cursor.take(width.into(), "value"),
        Extent::Prefixed(width) => cursor.take_prefixed(width.into(), "value"),
    }
}

/// Writes the value whose bytes are `bytes`, which `take_value` gave.
pub fn write_value(column: &MapColumn, bytes: &[u8], offset: u64, out: &mut Vec<u8>) -> Result<()> {
    let mut cursor = Cursor::new(bytes, offset);
    match column.wire {
        WireType::Null => out.extend_from_slice(b"null"),
        WireType::Int { width, unsigned } => {
            let number = cursor.uint_le(width.into(), "integer")?;
            if unsigned {
                show(number, out);
            } else {
                let unused = 64 - 8 * u32::from(width);
                show((number << unused) as i64 >> unused, out);
            }
        }
        WireType::Float => {
            let number = cursor.f32("float")?;
            write_number(number.is_finite(), |out| show(ryu::Buffer::new().format_finite(number), out), out);
        }
        WireType::Double => {
            let number = cursor.f64("double")?;
            write_number(number.is_finite(), |out| write_double(number, out), out);
        }
        WireType::Decimal { precision, scale } => {
            out.push(b'"');
            let image = DecimalImage::new(bytes, precision, scale);
            image.and_then(|image| image.write_text(out)).map_err(|error| cursor.fail(error.0))?;
            out.push(b'"');
        }
        WireType::Year => match cursor.u8("year")? {
            0 => out.push(b'0'),
            year => show(1900 + u16::from(year), out),
        },
        WireType::Bit { .. } => show(cursor.uint_be(bytes.len().min(8), "bit")?, out),
        WireType::Enum { width } => {
            let number = cursor.uint_le(width.into(), "enum")?;
            write_enum(column, number, out);
        }
        WireType::Set { width } => {
            let bits = cursor.uint_le(width.into(), "set")?;
            write_set(column, bits, out);
        }
        WireType::Char { length } => write_string(column, bytes, usize::from(length), out),
        WireType::Varchar { .. } | WireType::Blob { .. } => write_string(column, bytes, 0, out),
        WireType::Geometry { .. } | WireType::Vector { .. } => write_base64(bytes, out),
        WireType::Json { .. } => write_json_text(bytes, offset, out)?,
        _ => write_temporal(column.wire, &mut cursor, out)?,
    }
    Ok(())
}

fn show(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    // Writing into a Vec cannot fail.
    let _ = write!(out, "{value}");
}

/// No column holds an infinity; a damaged one must not make invalid JSON.
fn write_number(finite: bool, write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    if finite {
        write(out);
    } else {
        out.extend_from_slice(b"null");
    }
}

pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, text);
}

fn write_utf8(bytes: &[u8], out: &mut Vec<u8>) {
    write_json_string(&String::from_utf8_lossy(bytes), out);
}

fn write_string(column: &MapColumn, bytes: &[u8], padded: usize, out: &mut Vec<u8>) {
    match column.collation {
        // The log has BINARY(n) without the zero bytes at its end.
        Some(BINARY) if bytes.len() < padded => {
            let mut whole = bytes.to_vec();
            whole.resize(padded, 0);
            write_base64(&whole, out);
        }
        Some(BINARY) => write_base64(bytes, out),
        Some(collation) => write_utf8(&text(collation, bytes), out),
        None if printable(bytes) => write_utf8(bytes, out),
        None => write_base64(bytes, out),
    }
}

fn text(collation: u16, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    Charset::from_collation(collation).unwrap_or(Charset::Utf8).append(bytes, &mut text);
    text
}

fn printable(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| text.chars().all(|char| !char.is_control() || matches!(char, '\t' | '\n' | '\r')))
}

fn label(column: &MapColumn, index: usize) -> Option<Vec<u8>> {
    let bytes = column.labels.as_ref()?.get(index)?;
    Some(match column.collation {
        Some(collation) => text(collation, bytes),
        None => bytes.to_vec(),
    })
}

fn write_enum(column: &MapColumn, number: u64, out: &mut Vec<u8>) {
    match (number, &column.labels) {
        // What the server stores for a value it could not take.
        (0, Some(_)) => out.extend_from_slice(b"\"\""),
        _ => match label(column, (number as usize).wrapping_sub(1)) {
            Some(label) => write_utf8(&label, out),
            None => show(number, out),
        },
    }
}

fn write_set(column: &MapColumn, bits: u64, out: &mut Vec<u8>) {
    let known = column.labels.as_ref().map_or(0, Vec::len);
    if column.labels.is_none() || (known < 64 && bits >> known != 0) {
        return show(bits, out);
    }
    let labels = (0..known).filter(|index| bits >> index & 1 == 1).filter_map(|index| label(column, index));
    write_utf8(&labels.collect::<Vec<_>>().join(&b','), out);
}

/// The text of a JSON column, inside a string: so it stays what the server prints, digit for digit.
fn write_json_text(bytes: &[u8], offset: u64, out: &mut Vec<u8>) -> Result<()> {
    let mut text = Vec::new();
    json_text(bytes, offset, &mut text)?;
    write_utf8(&text, out);
    Ok(())
}

fn write_temporal(wire: WireType, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'"');
    match wire {
        WireType::Date => {
            let packed = cursor.uint_le(3, "date")? as u32;
            date(packed >> 9, packed >> 5 & 15, packed & 31).write_text(out);
        }
        WireType::OldTime => {
            let packed = ((cursor.uint_le(3, "time")? as u32) << 8) as i32 >> 8;
            let number = packed.unsigned_abs();
            time(packed < 0, number / 10_000, number / 100 % 100, number % 100, 0).write_text(0, out);
        }
        WireType::OldDateTime => {
            let packed = cursor.u64("datetime")?;
            let (day, clock) = ((packed / 1_000_000) as u32, (packed % 1_000_000) as u32);
            let date = date(day / 10_000, day / 100 % 100, day % 100);
            datetime(date, clock / 10_000, clock / 100 % 100, clock % 100, 0).write_text(0, out);
        }
        WireType::OldTimestamp => {
            DateTime::from_timestamp(cursor.u32("timestamp")?.into(), 0).write_text(0, out);
        }
        WireType::Timestamp { fsp } => {
            let seconds = cursor.uint_be(4, "timestamp")?;
            let micros = fraction(cursor, fsp)?;
            DateTime::from_timestamp(seconds, micros).write_text(fsp, out);
        }
        WireType::DateTime { fsp } => {
            let packed = cursor.uint_be(5, "datetime")?.wrapping_sub(0x80_0000_0000);
            let (day, clock) = ((packed >> 17) as u32, (packed & 0x1_ffff) as u32);
            let month = day >> 5 & 0x1_ffff;
            let date = date(month / 13, month % 13, day & 31);
            let micros = fraction(cursor, fsp)?;
            datetime(date, clock >> 12, clock >> 6 & 63, clock & 63, micros).write_text(fsp, out);
        }
        WireType::Time { fsp } => {
            // A signed fixed-point number around an offset: seconds (packed), then the fraction.
            let fraction_bytes = usize::from(fsp.div_ceil(2));
            let bits = 8 * fraction_bytes as u32;
            let packed = cursor.uint_be(3 + fraction_bytes, "time")? as i64 - (0x80_0000 << bits);
            let number = packed.unsigned_abs();
            let (clock, low) = ((number >> bits) as u32, number & ((1 << bits) - 1));
            let micros = scaled(low as u32, fraction_bytes);
            time(packed < 0, clock >> 12, clock >> 6 & 63, clock & 63, micros).write_text(fsp, out);
        }
        other => return Err(cursor.fail(format!("values of type {other:?} cannot be printed"))),
    }
    out.push(b'"');
    Ok(())
}

fn date(year: u32, month: u32, day: u32) -> Date {
    Date { year: year as u16, month: month as u8, day: day as u8 }
}

fn datetime(date: Date, hour: u32, minute: u32, second: u32, micros: u32) -> DateTime {
    DateTime { date, hour: hour as u8, minute: minute as u8, second: second as u8, micros }
}

fn time(negative: bool, hours: u32, minutes: u32, seconds: u32, micros: u32) -> Time {
    Time { negative, hours, minutes: minutes as u8, seconds: seconds as u8, micros }
}

fn fraction(cursor: &mut Cursor<'_>, fsp: u8) -> Result<u32> {
    let width = usize::from(fsp.div_ceil(2));
    Ok(scaled(cursor.uint_be(width, "fraction of a second")? as u32, width))
}

fn scaled(fraction: u32, width: usize) -> u32 {
    fraction.saturating_mul([0, 10_000, 100, 1][width.min(3)]).min(999_999)
}

pub fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push(b'"');
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { digit } else { b'=' });
        }
    }
    out.push(b'"');
}

fn json_text(bytes: &[u8], offset: u64, out: &mut Vec<u8>) -> Result<()> {
    crate::json::write_text(bytes, out).map_err(|error| Cursor::new(bytes, offset).fail(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(wire: WireType, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        write_temporal(wire, &mut Cursor::new(bytes, 0), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn old_temporal_values_are_decimal_digits() {
        assert_eq!(printed(WireType::OldTime, &(-8_385_959_i32).to_le_bytes()[..3]), "\"-838:59:59\"");
        assert_eq!(
            printed(WireType::OldDateTime, &20_240_229_235_959_u64.to_le_bytes()),
            "\"2024-02-29 23:59:59\""
        );
        assert_eq!(printed(WireType::OldTimestamp, &0_u32.to_le_bytes()), "\"0000-00-00 00:00:00\"");
    }

    #[test]
    fn base64_pads_to_groups_of_four() {
        for (bytes, expected) in [(&b""[..], "\"\""), (b"f", "\"Zg==\""), (b"fo", "\"Zm8=\""), (b"foo", "\"Zm9v\"")] {
            let mut out = Vec::new();
            write_base64(bytes, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
