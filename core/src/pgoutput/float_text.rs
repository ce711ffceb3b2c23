//! Numbers with a floating point as the server prints them.

use std::io::Write as _;

pub fn write_real(value: f32, out: &mut Vec<u8>) {
    float(f64::from(value), &format!("{value:e}"), 6, out);
}

pub fn write_double(value: f64, out: &mut Vec<u8>) {
    float(value, &format!("{value:e}"), 15, out);
}

/// `shortest`: the digits that say the value, as `1.5e-7`. `plain_max`: from this exponent on, the server
/// writes an exponent.
fn float(value: f64, shortest: &str, plain_max: i32, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..plain_max).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    out.extend_from_slice(sign.as_bytes());
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend((1..-exponent).map(|_| b'0'));
        out.extend_from_slice(&digits);
        return;
    }
    let whole = exponent as usize + 1;
    out.extend((0..whole).map(|at| digits.get(at).copied().unwrap_or(b'0')));
    if digits.len() > whole {
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}
