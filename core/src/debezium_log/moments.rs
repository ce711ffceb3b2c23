//! Moments and times of messages as microseconds.

use crate::temporal::Date;

use super::value::Refused;

/// A number of units of so many nanoseconds, cut to microseconds towards the past.
pub fn micros(number: i128, unit_ns: i64) -> i128 {
    (number * i128::from(unit_ns)).div_euclid(1000)
}

/// A span in units of so many nanoseconds, in the form of ISO 8601 that has only times: `PT-1H-0.5S`. Each
/// part has its own sign, as in `java.time.Duration`.
pub fn span(number: i64, unit_ns: i64) -> String {
    let total = i128::from(number) * i128::from(unit_ns);
    let (sign, nanos) = (if total < 0 { "-" } else { "" }, total.unsigned_abs());
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = "PT".to_owned();
    for (count, unit) in [(hours, 'H'), (minutes, 'M')] {
        if count > 0 {
            text += &format!("{sign}{count}{unit}");
        }
    }
    let fraction = if rest > 0 { format!(".{rest:09}") } else { String::new() };
    if seconds > 0 || rest > 0 || text.len() == 2 {
        text += &format!("{sign}{seconds}{}S", fraction.trim_end_matches('0'));
    }
    text
}

/// Microseconds since 1970 of an ISO 8601 text with its offset: `2026-01-31T10:00:00.5+01:00`. A fraction is
/// cut to microseconds.
pub fn zoned(text: &str) -> Result<i128, Refused> {
    parse(text).ok_or_else(|| "an ISO 8601 timestamp was expected".into())
}

fn parse(text: &str) -> Option<i128> {
    let (date, time) = text.split_once('T').or_else(|| text.split_once(' '))?;
    let at = time.find(['Z', '+', '-'])?;
    let (time, offset) = time.split_at(at);
    let (negative, date) = match date.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, date.strip_prefix('+').unwrap_or(date)),
    };
    let mut parts = date.split('-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if negative || parts.next().is_some() || !(1..=9999).contains(&year) {
        return None;
    }
    let date = Date { year: year as u16, month: u8::try_from(month).ok()?, day: u8::try_from(day).ok()? };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = time.split(':').map(number);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if hour > 24 || minute > 59 || second > 60 || parts.next().is_some() {
        return None;
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let seconds = i128::from(date.days()?) * 86_400 + i128::from(hour * 3600 + minute * 60 + second);
    Some((seconds - i128::from(offset_seconds(offset)?)) * 1_000_000 + i128::from(number(&digits)?))
}

/// `Z`, `+01`, `+01:00`, `-0330`, `+01:00:30`.
fn offset_seconds(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits: String = text[1..].chars().filter(|letter| *letter != ':').collect();
    if !matches!(digits.len(), 2 | 4 | 6) {
        return None;
    }
    let part = |at: usize| digits.get(at..at + 2).map_or(Some(0), number);
    Some(sign * (part(0)? * 3600 + part(2)? * 60 + part(4)?) as i32)
}

fn number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}
