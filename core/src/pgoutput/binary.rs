//! Numbers, dates and fields in the server's binary form.

use crate::cursor::Cursor;
use crate::error::ValueError;
use crate::temporal::Time;

/// The server's `MAXDIM`, of arrays.
const DIMENSIONS_MAX: usize = 6;
/// Days and microseconds from 1970 to 2000.
pub const EPOCH_DAYS: i64 = 10_957;
pub const EPOCH_US: i64 = super::message::EPOCH_US;
/// 0001-01-01 and 9999-12-31, in days since 1970.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;
pub const DAY_US: i64 = 86_400_000_000;
/// The same in microseconds.
const MOMENTS: std::ops::Range<i64> = *DAYS.start() * DAY_US..(*DAYS.end() + 1) * DAY_US;

#[cold]
pub fn wrong(what: &str) -> ValueError {
    ValueError::new(format!("these are not the bytes of {what}"))
}

/// The bytes of a value whose length is known.
#[inline(always)]
pub fn fixed<const N: usize>(bytes: &[u8], what: &str) -> Result<[u8; N], ValueError> {
    bytes.try_into().map_err(|_| wrong(what))
}

#[inline(always)]
pub fn i64_of(bytes: &[u8], what: &str) -> Result<i64, ValueError> {
    fixed(bytes, what).map(i64::from_be_bytes)
}

#[inline(always)]
pub fn i32_of(bytes: &[u8], what: &str) -> Result<i32, ValueError> {
    fixed(bytes, what).map(i32::from_be_bytes)
}

#[inline(always)]
pub fn i16_of(bytes: &[u8], what: &str) -> Result<i16, ValueError> {
    fixed(bytes, what).map(i16::from_be_bytes)
}

#[inline]
pub fn bool_of(bytes: &[u8]) -> Result<bool, ValueError> {
    match bytes {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(wrong("a boolean")),
    }
}

/// Days since 1970. None: it is infinite, before the year 1 or after 9999.
#[inline]
pub fn date_of(bytes: &[u8]) -> Result<Option<i32>, ValueError> {
    let days = i64::from(i32_of(bytes, "a date")?) + EPOCH_DAYS;
    Ok(DAYS.contains(&days).then_some(days as i32))
}

/// Microseconds since 1970. None: as of `date_of`.
#[inline]
pub fn moment_of(bytes: &[u8]) -> Result<Option<i64>, ValueError> {
    let micros = i64_of(bytes, "a timestamp")?.checked_add(EPOCH_US);
    Ok(micros.filter(|micros| MOMENTS.contains(micros)))
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
#[inline]
pub fn jsonb_of(bytes: &[u8]) -> Result<&[u8], ValueError> {
    match bytes.split_first() {
        Some((1, document)) => Ok(document),
        _ => Err(wrong("a jsonb")),
    }
}

/// The fields of a value, one behind the other.
pub struct Fields<'a>(Cursor<'a>, &'static str);

impl<'a> Fields<'a> {
    /// `what`: for messages.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self(Cursor::new(bytes, 0), what)
    }

    pub fn number(&mut self, width: usize) -> Result<u64, ValueError> {
        self.0.uint_be(width, self.1).map_err(|_| wrong(self.1))
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], ValueError> {
        self.0.take(length, self.1).map_err(|_| wrong(self.1))
    }

    /// The bytes of a value that has its length before it. None: it is NULL.
    pub fn value(&mut self) -> Result<Option<&'a [u8]>, ValueError> {
        let length = self.number(4)? as u32;
        if length == u32::MAX {
            return Ok(None);
        }
        self.take(length as usize).map(Some)
    }

    /// The bytes of a value that is never NULL.
    pub fn needed(&mut self) -> Result<&'a [u8], ValueError> {
        self.value()?.ok_or_else(|| wrong(self.1))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An error unless all bytes were read.
    pub fn finish(&self) -> Result<(), ValueError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(wrong(self.1))
        }
    }
}

/// The head of an array (`array_send`): of each dimension, its length and the number of its first element.
pub fn dimensions(fields: &mut Fields<'_>) -> Result<Vec<(usize, i32)>, ValueError> {
    let count = fields.number(4)? as usize;
    fields.take(8)?; // whether it has nulls, and the type of the elements
    if count > DIMENSIONS_MAX {
        return Err(wrong("an array"));
    }
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, first) = (fields.number(4)? as usize, fields.number(4)? as u32 as i32);
        if length == 0 && count > 1 {
            return Err(wrong("an array")); // an empty array has no dimensions, an empty int2vector one
        }
        found.push((length, first));
    }
    Ok(found)
}
