//! Points in time as text.

use crate::temporal::DateTime;

/// Microseconds since 1970 as ISO 8601 in UTC; with a fraction only where the log has one.
pub fn iso(micros: u64) -> String {
    if micros == 0 {
        return "1970-01-01T00:00:00Z".to_owned();
    }
    let mut text = Vec::with_capacity(27);
    let fraction = (micros % 1_000_000) as u32;
    DateTime::from_timestamp((micros / 1_000_000).max(1), fraction)
        .write_text(if fraction == 0 { 0 } else { 6 }, &mut text);
    text[10] = b'T';
    text.push(b'Z');
    String::from_utf8(text).unwrap_or_default()
}
