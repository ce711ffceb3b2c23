//! Doubles as the server prints them, with the fewest digits that read back as the same double. The notation
//! is plain if the decimal point is among the digits or within 15 places of the first one. Otherwise it is
//! `d.ddde-n`, without a plus sign and without padding.

/// The places of the decimal point, counted from the first digit, for which the notation is plain.
const PLAIN: std::ops::RangeInclusive<i32> = -14..=15;

/// Appends `value`. The server cannot store infinities and NaN; they are written as Rust prints them.
pub fn write_double(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() {
        out.extend_from_slice(value.to_string().as_bytes());
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if value == 0.0 {
        out.push(b'0');
        return;
    }
    let mut buffer = ryu::Buffer::new();
    let mut room = [0; DIGITS_MAX];
    let (digits, point) = digits(buffer.format_finite(value.abs()), &mut room);
    let count = digits.len() as i32;
    if !PLAIN.contains(&point) && !(1..count).contains(&point) {
        write_exponent(digits, point - 1, out);
    } else if point <= 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', point.unsigned_abs() as usize));
        out.extend_from_slice(digits);
    } else if point >= count {
        out.extend_from_slice(digits);
        out.extend(std::iter::repeat_n(b'0', (point - count) as usize));
    } else {
        out.extend_from_slice(&digits[..point as usize]);
        out.push(b'.');
        out.extend_from_slice(&digits[point as usize..]);
    }
}

fn write_exponent(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.push(b'e');
    out.extend_from_slice(exponent.to_string().as_bytes());
}

/// 17 digits, and the zeros that ryu writes beside them in plain notation.
const DIGITS_MAX: usize = 32;

/// Significant digits (no leading or trailing zeros), and the place of the decimal point, counted from the
/// first of them.
fn digits<'a>(text: &str, room: &'a mut [u8; DIGITS_MAX]) -> (&'a [u8], i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let whole = mantissa.find('.').unwrap_or(mantissa.len());
    let mut count = 0;
    for (place, digit) in room.iter_mut().zip(mantissa.bytes().filter(|byte| *byte != b'.')) {
        *place = digit;
        count += 1;
    }
    let all = &room[..count];
    let zeros = all.iter().take_while(|digit| **digit == b'0').count();
    let end = all.iter().rposition(|digit| *digit != b'0').map_or(zeros, |last| last + 1);
    (&all[zeros..end.max(zeros)], whole as i32 - zeros as i32 + exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_in_the_servers_notation() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (-100.0, "-100"),
            (0.001, "0.001"),
            (1e14, "100000000000000"),
            (1e15, "1e15"),
            (1_086_000_411_525_690.5, "1086000411525690.5"),
            (9_007_199_254_740_992.0, "9.007199254740992e15"),
            (1.25e-20, "1.25e-20"),
            (f64::MAX, "1.7976931348623157e308"),
        ] {
            let mut out = Vec::new();
            write_double(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
