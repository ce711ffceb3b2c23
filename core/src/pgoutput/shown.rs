//! Values in their binary form as SELECT prints them, with the settings that a session of Penstock has
//! (`IntervalStyle = iso_8601`, `DateStyle = ISO`, `TimeZone = UTC`, `bytea_output = hex`).

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::binary::{bool_of, fixed, i16_of, i32_of, i64_of, jsonb_of, time_of, wrong, DAY_US, EPOCH_DAYS};
use super::float_text::{write_double, write_real};
use super::numeric::{write_money, Numeric};
use super::types::PgType;
use super::{geometric, nested, search_text};
use crate::cursor::Cursor;
use crate::digits::{write_i64, write_padded, write_u64};
use crate::error::ValueError;
use crate::network::write_uuid;
use crate::place::lsn_text;
use crate::temporal::{Date, DateTime, Time};

type Written = Result<(), ValueError>;

pub fn write(kind: &PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    match kind {
        PgType::Bool => out.push(if bool_of(bytes)? { b't' } else { b'f' }),
        PgType::Int2 => write_i64(i16_of(bytes, "a smallint")?.into(), out),
        PgType::Int4 => write_i64(i32_of(bytes, "an integer")?.into(), out),
        PgType::Int8 => write_i64(i64_of(bytes, "a bigint")?, out),
        PgType::Oid => write_u64(u64::from(i32_of(bytes, "an oid")? as u32), out),
        PgType::Xid8 => write_u64(i64_of(bytes, "an xid8")? as u64, out),
        PgType::Float4 => write_real(f32::from_bits(i32_of(bytes, "a real")? as u32), out),
        PgType::Float8 => write_double(f64::from_bits(i64_of(bytes, "a double precision")? as u64), out),
        PgType::Numeric => Numeric::parse(bytes)?.write_text(out),
        PgType::Money => write_money(i64_of(bytes, "money")?.into(), out),
        PgType::Text | PgType::Json => out.extend_from_slice(bytes),
        PgType::Jsonb => out.extend_from_slice(jsonb_of(bytes)?),
        PgType::Bytea => {
            out.extend_from_slice(b"\\x");
            for byte in bytes {
                let _ = write!(out, "{byte:02x}"); // writing into a Vec cannot fail
            }
        }
        PgType::Bit => bits(bytes, out)?,
        PgType::Date => match i32_of(bytes, "a date")? {
            i32::MAX => out.extend_from_slice(b"infinity"),
            i32::MIN => out.extend_from_slice(b"-infinity"),
            days => day(i64::from(days) + EPOCH_DAYS, |_| (), out),
        },
        PgType::Timestamp | PgType::TimestampTz => match i64_of(bytes, "a timestamp")? {
            i64::MAX => out.extend_from_slice(b"infinity"),
            i64::MIN => out.extend_from_slice(b"-infinity"),
            micros => moment(micros, *kind == PgType::TimestampTz, out),
        },
        PgType::Time => time(time_of(bytes)?, out),
        PgType::TimeTz => {
            let Some((clock, zone)) = bytes.split_at_checked(8) else { return Err(wrong("a time")) };
            time(time_of(clock)?, out);
            offset(i32_of(zone, "a time zone")?, out);
        }
        PgType::Interval => interval(bytes, out)?,
        PgType::Uuid => write_uuid(&fixed(bytes, "a uuid")?, out),
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
        PgType::VersionedText => out.extend_from_slice(jsonb_of(bytes)?),
        PgType::TsVector => search_text::vector(bytes, out)?,
        PgType::TsQuery => search_text::query(bytes, out)?,
        PgType::Point
        | PgType::Segment
        | PgType::Box
        | PgType::Path
        | PgType::Polygon
        | PgType::Line
        | PgType::Circle
        | PgType::Vector => geometric::write(kind, bytes, out)?,
        PgType::Hstore => nested::hstore(bytes, out)?,
        PgType::Array(element) => nested::array(write, element, bytes, out)?,
        PgType::Range(bound) => nested::range(write, bound, bytes, out)?,
        PgType::Multirange(bound) => nested::multirange(write, bound, bytes, out)?,
        PgType::Record(fields) => nested::record(write, fields, bytes, out)?,
        PgType::Other => return Err(ValueError::new("the binary form of this type is not known")),
    }
    Ok(())
}

/// Days since 1970, of any year. `rest`: writes what is between the day and the mark of years before the
/// year 1.
fn day(days: i64, rest: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let date = Date::from_days(days.rem_euclid(DAYS_OF_400_YEARS) as i32);
    let year = i64::from(date.year) + 400 * days.div_euclid(DAYS_OF_400_YEARS);
    let shown = if year > 0 { year } else { 1 - year };
    let _ = write!(out, "{shown:04}-{:02}-{:02}", date.month, date.day); // into a Vec: cannot fail
    rest(out);
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// `micros`: since 2000.
fn moment(micros: i64, has_zone: bool, out: &mut Vec<u8>) {
    let days = micros.div_euclid(DAY_US) + EPOCH_DAYS;
    let clock = DateTime::from_micros(micros.rem_euclid(DAY_US));
    let rest = |out: &mut Vec<u8>| {
        let _ = write!(out, " {:02}:{:02}:{:02}", clock.hour, clock.minute, clock.second);
        fraction(clock.micros, out);
        if has_zone {
            out.extend_from_slice(b"+00");
        }
    };
    day(days, rest, out);
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
