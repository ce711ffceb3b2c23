//! Floating-point values, and numbers without a precision, as JSON has them.

use crate::decimal::Plain;
use crate::rows::Taken;

/// JSON has no infinities: they are texts, as Kafka Connect's converter writes them.
pub fn write_double(value: f64, out: &mut Vec<u8>) {
    match value.is_finite() {
        true => show_double(value, out),
        false => write_name(value, out),
    }
}

pub fn write_float(value: f32, out: &mut Vec<u8>) {
    match value.is_finite() {
        true => show_float(value, out),
        false => write_name(value.into(), out),
    }
}

#[cold]
fn write_name(value: f64, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name_of(value));
    out.push(b'"');
}

/// The fewest digits that give the same value, or the name of what is no number.
pub fn show_double(value: f64, out: &mut Vec<u8>) {
    match value.is_finite() {
        true => out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes()),
        false => out.extend_from_slice(name_of(value)),
    }
}

pub fn show_float(value: f32, out: &mut Vec<u8>) {
    match value.is_finite() {
        true => out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes()),
        false => out.extend_from_slice(name_of(value.into())),
    }
}

#[cold]
fn name_of(value: f64) -> &'static [u8] {
    match value {
        f64::INFINITY => b"Infinity",
        f64::NEG_INFINITY => b"-Infinity",
        _ => b"NaN",
    }
}

/// A number without a declared precision as a number of JSON, or as the name of what is no number.
pub fn write_numeric(text: &[u8], out: &mut Vec<u8>) -> Taken {
    match Plain::parse(text)? {
        Plain::Digits(digits) => out.extend_from_slice(digits),
        Plain::NotNumber(value) => write_double(value, out),
    }
    Ok(())
}

pub fn write_floats(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, bytes) in value.chunks_exact(4).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_float(bytes.first_chunk().map_or(0.0, |bytes| f32::from_le_bytes(*bytes)), out);
    }
    out.push(b']');
}
