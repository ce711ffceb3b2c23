//! TIME, DATETIME and TIMESTAMP as they were before MySQL 5.6.4 and MariaDB 10.1.2. Tables keep the form
//! until they are rebuilt, and MariaDB still makes it with `mysql56_temporal_format = OFF`.
//!
//! Without a fraction, the decimal digits of a little-endian number are those of the value, and a TIMESTAMP
//! is its seconds. MariaDB's columns with a fraction have a big-endian number, whose unit is the last digit
//! of the fraction:
//!
//! - TIME: the duration plus 839 hours, which makes it positive.
//! - DATETIME: the time since the year 0, in years of 13 months of 32 days.
//! - TIMESTAMP: four bytes of seconds, then the fraction.
//!
//! The form was found by writing values of every precision to MariaDB 10.11 and 11.8.

use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::temporal::{Date, DateTime, Time};

/// Bytes of a value, by the digits of its fraction.
pub const TIME: [u8; 7] = [3, 4, 4, 5, 5, 5, 6];
pub const DATETIME: [u8; 7] = [8, 6, 6, 7, 7, 7, 8];
pub const TIMESTAMP: [u8; 7] = [4, 5, 5, 6, 6, 7, 7];

/// One more than the seconds of the longest TIME.
const TIME_SECONDS: u64 = 839 * 3600;
const DAY_SECONDS: u64 = 86_400;

/// The note of `inspect` on rows with values of unknown length.
pub const NOT_SHOWN: &str = "rows with TIME, DATETIME or TIMESTAMP in MariaDB's old form are not shown or \
                             counted: the log does not say how long such values are";

/// The error for a value of unknown length.
#[cold]
pub fn undefined(image: &Cursor<'_>) -> DecodeError {
    image.fail(
        "a TIME, DATETIME or TIMESTAMP in MariaDB's old form, whose length the log does not say; the \
         definition of the table is needed",
    )
}

/// The fraction's digits, and the size of a value.
fn size(image: &Cursor<'_>, fsp: Option<u8>, sizes: [u8; 7]) -> Result<(u8, usize)> {
    let known = fsp.and_then(|fsp| Some((fsp, usize::from(*sizes.get(usize::from(fsp))?))));
    known.ok_or_else(|| undefined(image))
}

/// How many of the unit are a second.
fn units(fsp: u8) -> u64 {
    10_u64.pow(fsp.into())
}

fn micros(fraction: u64, fsp: u8) -> u32 {
    (fraction * units(6 - fsp)) as u32
}

#[inline(never)]
pub fn time(image: &mut Cursor<'_>, fsp: Option<u8>) -> Result<Time> {
    let start = *image;
    let (fsp, size) = size(image, fsp, TIME)?;
    let (negative, seconds, micros) = if fsp == 0 {
        let value = ((image.uint_le(size, "time")? << 40) as i64) >> 40;
        let digits = value.unsigned_abs();
        let (minutes, seconds) = (digits / 100 % 100, digits % 100);
        if minutes > 59 || seconds > 59 {
            return Err(start.fail("a time with more than 59 minutes or seconds"));
        }
        (value < 0, (digits / 10_000 * 60 + minutes) * 60 + seconds, 0)
    } else {
        let stored = image.uint_be(size, "time")?;
        let zero = TIME_SECONDS * units(fsp);
        let value = stored.abs_diff(zero);
        (stored < zero, value / units(fsp), micros(value % units(fsp), fsp))
    };
    if seconds >= TIME_SECONDS {
        return Err(start.fail("a time beyond 838:59:59"));
    }
    Ok(Time {
        negative,
        hours: (seconds / 3600) as u32,
        minutes: (seconds / 60 % 60) as u8,
        seconds: (seconds % 60) as u8,
        micros,
    })
}

#[inline(never)]
pub fn datetime(image: &mut Cursor<'_>, fsp: Option<u8>) -> Result<DateTime> {
    let start = *image;
    let (fsp, size) = size(image, fsp, DATETIME)?;
    let value = if fsp == 0 {
        let digits = image.uint_le(size, "datetime")?;
        let pair = |divisor: u64| (digits / divisor % 100) as u8;
        DateTime {
            date: Date {
                year: (digits / 10_000_000_000).min(10_000) as u16,
                month: pair(100_000_000),
                day: pair(1_000_000),
            },
            hour: pair(10_000),
            minute: pair(100),
            second: pair(1),
            micros: 0,
        }
    } else {
        let stored = image.uint_be(size, "datetime")?;
        let (seconds, fraction) = (stored / units(fsp), stored % units(fsp));
        let (days, of_day) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
        let (months, day) = (days / 32, days % 32);
        DateTime {
            date: Date { year: (months / 13).min(10_000) as u16, month: (months % 13) as u8, day: day as u8 },
            hour: (of_day / 3600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
            micros: micros(fraction, fsp),
        }
    };
    let DateTime { date, hour, minute, second, .. } = value;
    if date.year > 9999 || date.month > 12 || date.day > 31 || hour > 23 || minute > 59 || second > 59 {
        return Err(start.fail("a datetime that cannot be"));
    }
    Ok(value)
}

/// Seconds since 1970, and microseconds.
#[inline(never)]
pub fn timestamp(image: &mut Cursor<'_>, fsp: Option<u8>) -> Result<(u64, u32)> {
    let start = *image;
    let (fsp, size) = size(image, fsp, TIMESTAMP)?;
    if fsp == 0 {
        return Ok((image.uint_le(size, "timestamp")?, 0));
    }
    let seconds = image.uint_be(4, "timestamp")?;
    let fraction = image.uint_be(size - 4, "fraction of a second")?;
    if fraction >= units(fsp) {
        return Err(start.fail("a timestamp with more than a second of fraction"));
    }
    Ok((seconds, micros(fraction, fsp)))
}
