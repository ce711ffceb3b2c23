//! Values in their binary form as SELECT prints them, with the settings that a session of Penstock has
//! (`IntervalStyle = iso_8601`, `DateStyle = ISO`, `TimeZone = UTC`, `bytea_output = hex`).

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::numeric::Numeric;
use super::types::PgType;
use crate::cursor::Cursor;
use crate::digits::{write_i64, write_padded, write_u64};
use crate::error::ValueError;
use crate::network::Network;
use crate::place::lsn_text;
use crate::temporal::{Date, DateTime, Time};

type Written = Result<(), ValueError>;

/// Days and microseconds from 1970 to 2000.
pub const EPOCH_DAYS: i64 = 10_957;
pub const EPOCH_US: i64 = super::message::EPOCH_US;
/// 0001-01-01 and 9999-12-31, in days since 1970.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;
const DAY_US: i64 = 86_400_000_000;

/// A day or moment that a date of Spark cannot be.
#[cold]
pub fn extreme() -> ValueError {
    ValueError::new("a date or time that is infinite, before the year 1 or after 9999")
}

#[cold]
pub fn wrong(what: &str) -> ValueError {
    ValueError::new(format!("these are not the bytes of {what}"))
}

fn fixed<const N: usize>(bytes: &[u8], what: &str) -> Result<[u8; N], ValueError> {
    bytes.try_into().map_err(|_| wrong(what))
}

pub fn i64_of(bytes: &[u8], what: &str) -> Result<i64, ValueError> {
    fixed(bytes, what).map(i64::from_be_bytes)
}

pub fn i32_of(bytes: &[u8], what: &str) -> Result<i32, ValueError> {
    fixed(bytes, what).map(i32::from_be_bytes)
}

pub fn i16_of(bytes: &[u8], what: &str) -> Result<i16, ValueError> {
    fixed(bytes, what).map(i16::from_be_bytes)
}

pub fn bool_of(bytes: &[u8]) -> Result<bool, ValueError> {
    match bytes {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(wrong("a boolean")),
    }
}

/// Days since 1970.
pub fn date_of(bytes: &[u8]) -> Result<Date, ValueError> {
    let days = i64::from(i32_of(bytes, "a date")?) + EPOCH_DAYS;
    if DAYS.contains(&days) {
        Ok(Date::from_days(days as i32))
    } else {
        Err(extreme())
    }
}

/// Microseconds since 1970.
pub fn moment_of(bytes: &[u8]) -> Result<i64, ValueError> {
    let micros = i64_of(bytes, "a timestamp")?.checked_add(EPOCH_US).ok_or_else(extreme)?;
    if DAYS.contains(&micros.div_euclid(DAY_US)) {
        Ok(micros)
    } else {
        Err(extreme())
    }
}

/// Up to 24:00:00.
pub fn time_of(bytes: &[u8]) -> Result<Time, ValueError> {
    let micros = i64_of(bytes, "a time")?;
    if !(0..=DAY_US).contains(&micros) {
        return Err(wrong("a time"));
    }
    Time::from_micros(micros).ok_or_else(|| wrong("a time"))
}

/// The document of a `jsonb`: behind the version of the form.
pub fn jsonb_of(bytes: &[u8]) -> Result<&[u8], ValueError> {
    match bytes.split_first() {
        Some((1, document)) => Ok(document),
        _ => Err(wrong("a jsonb")),
    }
}

pub fn write(kind: PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    match kind {
        PgType::Bool => out.push(if bool_of(bytes)? { b't' } else { b'f' }),
        PgType::Int2 => write_i64(i16_of(bytes, "a smallint")?.into(), out),
        PgType::Int4 => write_i64(i32_of(bytes, "an integer")?.into(), out),
        PgType::Int8 => write_i64(i64_of(bytes, "a bigint")?, out),
        PgType::Oid => write_u64(u64::from(i32_of(bytes, "an oid")? as u32), out),
        PgType::Xid8 => write_u64(i64_of(bytes, "an xid8")? as u64, out),
        PgType::Float4 => float(f32::from_bits(i32_of(bytes, "a real")? as u32), out),
        PgType::Float8 => float(f64::from_bits(i64_of(bytes, "a double precision")? as u64), out),
        PgType::Numeric => Numeric::parse(bytes)?.write_text(out),
        PgType::Money => write_i64(i64_of(bytes, "money")?, out),
        PgType::Text | PgType::Json => out.extend_from_slice(bytes),
        PgType::Jsonb => out.extend_from_slice(jsonb_of(bytes)?),
        PgType::Bytea => {
            out.extend_from_slice(b"\\x");
            for byte in bytes {
                let _ = write!(out, "{byte:02x}"); // writing into a Vec cannot fail
            }
        }
        PgType::Bit => bits(bytes, out)?,
        PgType::Date => date_of(bytes)?.write_text(out),
        PgType::Timestamp | PgType::TimestampTz => {
            let moment = DateTime::from_micros(moment_of(bytes)?);
            moment.write_text(0, out);
            fraction(moment.micros, out);
            if kind == PgType::TimestampTz {
                out.extend_from_slice(b"+00");
            }
        }
        PgType::Time => time(time_of(bytes)?, out),
        PgType::TimeTz => {
            let Some((clock, zone)) = bytes.split_at_checked(8) else { return Err(wrong("a time")) };
            time(time_of(clock)?, out);
            offset(i32_of(zone, "a time zone")?, out);
        }
        PgType::Interval => interval(bytes, out)?,
        PgType::Uuid => {
            let stored = Network::stored_uuid(fixed(bytes, "a uuid")?);
            Network::Uuid.write_text(&stored, out)?;
        }
        PgType::Inet => inet(bytes, out)?,
        PgType::Mac => {
            if !matches!(bytes.len(), 6 | 8) {
                return Err(wrong("a macaddr"));
            }
            for (index, byte) in bytes.iter().enumerate() {
                let _ = write!(out, "{}{byte:02x}", if index > 0 { ":" } else { "" });
            }
        }
        PgType::Lsn => {
            let lsn = i64_of(bytes, "a pg_lsn")? as u64;
            out.extend_from_slice(lsn_text(lsn).as_bytes());
        }
        PgType::Array | PgType::Other => {
            return Err(ValueError::new("the binary form of this type is not known"));
        }
    }
    Ok(())
}

fn float(value: impl Into<f64> + std::fmt::Display, out: &mut Vec<u8>) {
    let text = value.to_string();
    let wide: f64 = value.into();
    match (wide.is_nan(), wide.is_infinite()) {
        (true, _) => out.extend_from_slice(b"NaN"),
        (_, true) => out.extend_from_slice(if wide > 0.0 { b"Infinity" } else { b"-Infinity" }),
        _ => out.extend_from_slice(text.as_bytes()),
    }
}

fn bits(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let Some((count, bits)) = bytes.split_first_chunk::<4>() else { return Err(wrong("bits")) };
    let count = u32::from_be_bytes(*count) as usize;
    if bits.len() != count.div_ceil(8) {
        return Err(wrong("bits"));
    }
    out.extend((0..count).map(|at| b'0' + (bits[at / 8] >> (7 - at % 8) & 1)));
    Ok(())
}

/// Without zeros at the end.
fn fraction(micros: u32, out: &mut Vec<u8>) {
    if micros == 0 {
        return;
    }
    out.push(b'.');
    write_padded(micros, 6, out);
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

fn time(value: Time, out: &mut Vec<u8>) {
    value.write_text(0, out);
    fraction(value.micros, out);
}

/// `west`: seconds west of Greenwich.
fn offset(west: i32, out: &mut Vec<u8>) {
    let east = -i64::from(west);
    out.push(if east < 0 { b'-' } else { b'+' });
    let seconds = east.unsigned_abs() as u32;
    write_padded(seconds / 3600, 2, out);
    for (part, needed) in [(seconds / 60 % 60, seconds % 3600 != 0), (seconds % 60, seconds % 60 != 0)] {
        if needed {
            out.push(b':');
            write_padded(part, 2, out);
        }
    }
}

/// In the form of ISO 8601, as the server's `EncodeInterval` writes it.
fn interval(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut cursor = Cursor::new(bytes, 0);
    let mut read = |width: usize| cursor.uint_be(width, "interval").map_err(|_| wrong("an interval"));
    let (micros, days, months) = (read(8)? as i64, read(4)? as u32 as i32, read(4)? as u32 as i32);
    if !cursor.is_empty() {
        return Err(wrong("an interval"));
    }
    match (micros, days, months) {
        (i64::MAX, i32::MAX, i32::MAX) => out.extend_from_slice(b"infinity"),
        (i64::MIN, i32::MIN, i32::MIN) => out.extend_from_slice(b"-infinity"),
        (0, 0, 0) => out.extend_from_slice(b"PT0S"),
        _ => {
            out.push(b'P');
            let part = |value: i64, unit: u8, out: &mut Vec<u8>| {
                if value != 0 {
                    write_i64(value, out);
                    out.push(unit);
                }
            };
            part((months / 12).into(), b'Y', out);
            part((months % 12).into(), b'M', out);
            part(days.into(), b'D', out);
            if micros != 0 {
                out.push(b'T');
                part(micros / 3_600_000_000, b'H', out);
                part(micros / 60_000_000 % 60, b'M', out);
                let rest = micros % 60_000_000;
                if rest != 0 {
                    if rest < 0 {
                        out.push(b'-');
                    }
                    write_u64(rest.unsigned_abs() / 1_000_000, out);
                    fraction((rest.unsigned_abs() % 1_000_000) as u32, out);
                    out.push(b'S');
                }
            }
        }
    }
    Ok(())
}

fn inet(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let [family, bits, is_cidr, length, address @ ..] = bytes else { return Err(wrong("an address")) };
    if address.len() != usize::from(*length) {
        return Err(wrong("an address"));
    }
    let whole = match (family, address) {
        (2, &[a, b, c, d]) => {
            let _ = write!(out, "{}", Ipv4Addr::new(a, b, c, d));
            32
        }
        (3, address) => {
            let octets: [u8; 16] = fixed(address, "an address")?;
            // The server writes the last four bytes as an address of version 4 also behind 96 zero bits.
            match (octets[..12].iter().all(|byte| *byte == 0), octets[12..14] != [0, 0]) {
                (true, true) => {
                    drop(write!(out, "::{}", Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15])))
                }
                _ => drop(write!(out, "{}", Ipv6Addr::from(octets))),
            }
            128
        }
        _ => return Err(wrong("an address")),
    };
    if *is_cidr != 0 || *bits != whole {
        let _ = write!(out, "/{bits}");
    }
    Ok(())
}
