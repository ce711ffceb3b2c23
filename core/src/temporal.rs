//! Dates and times as MySQL has them: fields that need not form a date (`2024-00-10`), times beyond a day.

use crate::digits::write_padded;
use crate::error::ValueError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Date {
    pub year: u16,
    pub month: u8,
    pub day: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DateTime {
    pub date: Date,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub micros: u32,
}

/// A signed duration, up to 838:59:59.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    pub negative: bool,
    pub hours: u32,
    pub minutes: u8,
    pub seconds: u8,
    pub micros: u32,
}

const DAY_US: i64 = 86_400_000_000;

impl Date {
    /// Days since 1970-01-01. None for a date that the calendar does not have: a zero or partial date,
    /// February 31st (which a server can allow), and the year 0, which neither Spark nor Python has.
    #[inline]
    pub fn days(self) -> Option<i32> {
        let Self { year, month, day } = self;
        if year == 0 || year > 9999 || day == 0 || day > days_in_month(year, month) {
            return None;
        }
        // Years that begin in March put the leap day last (Howard Hinnant, "chrono-compatible date
        // algorithms").
        let years = u32::from(year) - u32::from(month <= 2);
        let month_from_march = (u32::from(month) + 9) % 12;
        let of_year = (153 * month_from_march + 2) / 5 + u32::from(day) - 1;
        let days = years * 365 + years / 4 - years / 100 + years / 400 + of_year;
        Some(days as i32 - 719_468)
    }

    pub fn from_days(days: i32) -> Self {
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let of_year = day_of_era - (365 * of_era + of_era / 4 - of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let month = (month_from_march + 2) % 12 + 1;
        Self {
            year: (of_era + era * 400 + i32::from(month <= 2)) as u16,
            month: month as u8,
            day: (of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
        }
    }

    /// From `YYYY-MM-DD`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let [year @ .., b'-', m, n, b'-', d, e] = text else { return None };
        Some(Self {
            year: u16::try_from(number(year)?).ok()?,
            month: number(&[*m, *n])? as u8,
            day: number(&[*d, *e])? as u8,
        })
    }

    pub fn write_text(self, out: &mut Vec<u8>) {
        write_padded(self.year.into(), 4, out);
        out.push(b'-');
        write_padded(self.month.into(), 2, out);
        out.push(b'-');
        write_padded(self.day.into(), 2, out);
    }
}

#[inline]
fn days_in_month(year: u16, month: u8) -> u8 {
    const DAYS: [u8; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    match DAYS.get(usize::from(month)) {
        Some(29) if year % 4 != 0 || (year % 100 == 0 && year % 400 != 0) => 28,
        Some(days) => *days,
        None => 0,
    }
}

/// A moment, or the zero date of MySQL in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instant {
    Zero,
    /// Microseconds since 1970.
    Micros(i64),
}

impl Instant {
    /// Of a TIMESTAMP of MySQL: see `DateTime::from_timestamp`.
    #[inline]
    pub fn of_timestamp(seconds: u64, micros: u32) -> Result<Self, ValueError> {
        let scaled = i64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1_000_000));
        match (seconds, micros, scaled) {
            (0, 0, _) => Ok(Self::Zero),
            (_, ..1_000_000, Some(scaled)) => Ok(Self::Micros(scaled + i64::from(micros))),
            _ => Err(ValueError::new("a timestamp with more than a second of fraction")),
        }
    }

    /// The fields, in UTC.
    pub fn datetime(self) -> DateTime {
        match self {
            Self::Zero => DateTime::default(),
            Self::Micros(micros) => match u64::try_from(micros) {
                Ok(micros) => DateTime::at(micros / 1_000_000, (micros % 1_000_000) as u32),
                Err(_) => DateTime::from_micros(micros),
            },
        }
    }
}

impl DateTime {
    /// Microseconds since 1970. None: there is no such date (`Date::days`) or no such time of day.
    #[inline]
    pub fn micros_since_1970(self) -> Option<i64> {
        let days = i64::from(self.date.days()?);
        if self.hour > 23 || self.minute > 59 || self.second > 59 || self.micros > 999_999 {
            return None;
        }
        let seconds = (i64::from(self.hour) * 60 + i64::from(self.minute)) * 60 + i64::from(self.second);
        Some(days * DAY_US + seconds * 1_000_000 + i64::from(self.micros))
    }

    pub fn from_micros(micros: i64) -> Self {
        let of_day = (micros.rem_euclid(DAY_US) / 1_000_000) as u32;
        Self {
            date: Date::from_days(micros.div_euclid(DAY_US) as i32),
            hour: (of_day / 3600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
            micros: micros.rem_euclid(1_000_000) as u32,
        }
    }

    /// From `YYYY-MM-DD hh:mm:ss` with up to six digits behind a point.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (date, clock) = (text.get(..10)?, text.get(11..)?);
        let Time { negative: false, hours, minutes, seconds, micros } = Time::parse(clock)? else {
            return None;
        };
        let date = Date::parse(date)?;
        Some(Self { date, hour: u8::try_from(hours).ok()?, minute: minutes, second: seconds, micros })
    }

    /// The fields of a TIMESTAMP of MySQL, in UTC. 0 is the zero date '0000-00-00 00:00:00'. In MariaDB, the
    /// fractions of second 0 are moments.
    pub fn from_timestamp(seconds: u64, micros: u32) -> Self {
        if (seconds, micros) == (0, 0) {
            return Self::default();
        }
        Self::at(seconds, micros)
    }

    fn at(seconds: u64, micros: u32) -> Self {
        let of_day = (seconds % 86_400) as u32;
        Self {
            date: Date::from_days((seconds / 86_400).min(3_000_000) as i32),
            hour: (of_day / 3600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
            micros,
        }
    }

    pub fn write_text(self, fsp: u8, out: &mut Vec<u8>) {
        self.date.write_text(out);
        out.push(b' ');
        write_clock(self.hour.into(), self.minute, self.second, out);
        write_fraction(self.micros, fsp, out);
    }
}

impl Time {
    pub fn micros(self) -> i64 {
        let seconds = (i64::from(self.hours) * 60 + i64::from(self.minutes)) * 60 + i64::from(self.seconds);
        let micros = seconds * 1_000_000 + i64::from(self.micros);
        if self.negative {
            -micros
        } else {
            micros
        }
    }

    pub fn from_micros(micros: i64) -> Option<Self> {
        let magnitude = micros.unsigned_abs();
        let seconds = magnitude / 1_000_000;
        Some(Self {
            negative: micros < 0,
            hours: u32::try_from(seconds / 3600).ok().filter(|hours| *hours < 1000)?,
            minutes: (seconds / 60 % 60) as u8,
            seconds: (seconds % 60) as u8,
            micros: (magnitude % 1_000_000) as u32,
        })
    }

    /// From text as SELECT prints it.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let negative = text.first() == Some(&b'-');
        let text = &text[usize::from(negative)..];
        let point = text.iter().position(|byte| *byte == b'.');
        let (clock, fraction) = match point {
            Some(point) => (&text[..point], &text[point + 1..]),
            None => (text, &b""[..]),
        };
        let [hours @ .., b':', m, n, b':', s, t] = clock else { return None };
        let missing = 6_usize.checked_sub(fraction.len())?;
        let micros = if fraction.is_empty() { 0 } else { number(fraction)? * 10_u32.pow(missing as u32) };
        let (minutes, seconds) = (number(&[*m, *n])? as u8, number(&[*s, *t])? as u8);
        Some(Self { negative, hours: number(hours).filter(|hours| *hours < 1000)?, minutes, seconds, micros })
    }

    /// As SELECT prints it: at least two digits of hours, `fsp` digits after the point.
    #[inline]
    pub fn write_text(self, fsp: u8, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        write_clock(self.hours, self.minutes, self.seconds, out);
        write_fraction(self.micros, fsp, out);
    }
}

/// The number that one to six digits write.
fn number(digits: &[u8]) -> Option<u32> {
    let is_number = (1..=6).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

fn write_clock(hours: u32, minutes: u8, seconds: u8, out: &mut Vec<u8>) {
    write_padded(hours, 2, out);
    out.push(b':');
    write_padded(minutes.into(), 2, out);
    out.push(b':');
    write_padded(seconds.into(), 2, out);
}

fn write_fraction(micros: u32, fsp: u8, out: &mut Vec<u8>) {
    if fsp > 0 {
        let fsp = usize::from(fsp.min(6));
        out.push(b'.');
        write_padded(micros / 10_u32.pow(6 - fsp as u32), fsp, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_inverse_over_all_years() {
        for days in (-719_162..2_932_897).step_by(17) {
            assert_eq!(Date::from_days(days).days(), Some(days));
        }
        assert_eq!(Date { year: 1970, month: 1, day: 1 }.days(), Some(0));
        assert_eq!(Date { year: 9999, month: 12, day: 31 }.days(), Some(2_932_896));
    }

    #[test]
    fn what_is_no_date_has_no_days() {
        for (year, month, day) in
            [(0, 0, 0), (2024, 0, 10), (2024, 2, 30), (2023, 2, 29), (0, 1, 1), (2024, 13, 1)]
        {
            assert_eq!(Date { year, month, day }.days(), None);
        }
    }

    #[test]
    fn times_print_as_select_does() {
        let mut text = Vec::new();
        Time { negative: true, hours: 838, minutes: 59, seconds: 59, micros: 0 }.write_text(6, &mut text);
        Time { micros: 120_000, ..Time::default() }.write_text(2, &mut text);
        assert_eq!(text, b"-838:59:59.00000000:00:00.12");
    }
}
