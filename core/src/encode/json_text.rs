//! Strings of JSON documents, from bytes in any character set.

use crate::charset::{append_utf8, Charset};
use crate::column::encode;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Whether one of eight bytes is no ASCII, a control character, `"` or `\`.
#[inline(always)]
fn is_special(word: u64) -> bool {
    let below_space = word.wrapping_sub(ONES * 0x20);
    let quote = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    // A borrow from the byte below can only make more bytes special, never fewer.
    (word | below_space | quote | backslash) & HIGHS != 0
}

/// Whether the bytes can stand in a string as they are.
#[inline(always)]
fn is_plain(bytes: &[u8]) -> bool {
    let mut words = bytes.chunks_exact(8);
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut special = words.any(|bytes| is_special(word(bytes)));
    for byte in words.remainder() {
        special |= !matches!(byte, 0x20..=0x7f) || *byte == b'"' || *byte == b'\\';
    }
    !special
}

/// Appends a string of UTF-8 in quotation marks. Bytes that are no UTF-8 arrive as `\xNN`.
#[inline]
pub fn write_utf8(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
    } else {
        write_special(bytes, out);
    }
    out.push(b'"');
}

#[inline(never)]
fn write_special(bytes: &[u8], out: &mut Vec<u8>) {
    if simdutf8::basic::from_utf8(bytes).is_ok() {
        return escape(bytes, out);
    }
    let mut text = Vec::with_capacity(bytes.len() + 16);
    append_utf8(bytes, &mut text);
    escape(&text, out);
}

/// Where the first byte is that needs an escape.
#[inline(always)]
fn first_special(text: &[u8]) -> Option<usize> {
    let words = text.chunks_exact(8);
    let rest = words.remainder();
    for (index, bytes) in words.enumerate() {
        let word = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = zero(word ^ (ONES * u64::from(b'"')));
        let backslash = zero(word ^ (ONES * u64::from(b'\\')));
        // A borrow only comes from a special byte below, so the lowest one is right.
        let special = (control | quote | backslash) & HIGHS;
        if special != 0 {
            return Some(8 * index + special.trailing_zeros() as usize / 8);
        }
    }
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    rest.iter().position(special).map(|at| text.len() - rest.len() + at)
}

/// Appends valid UTF-8 with escapes.
fn escape(mut text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 16);
    loop {
        let Some(at) = first_special(text) else {
            out.extend_from_slice(text);
            return;
        };
        out.extend_from_slice(&text[..at]);
        let byte = text[at];
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            12 => b'f',
            _ => 0,
        };
        if short == 0 {
            let digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&digits);
        } else {
            out.extend_from_slice(&[b'\\', short]);
        }
        text = &text[at + 1..];
    }
}

pub fn write_text(text: &str, out: &mut Vec<u8>) {
    write_utf8(text.as_bytes(), out);
}

/// The text in quotation marks, for what is written once.
pub fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_text(text, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a string in a character set. `trimmed`: without spaces at its end.
#[inline]
pub fn write_string(charset: Charset, trimmed: bool, bytes: &[u8], out: &mut Vec<u8>) {
    if charset == Charset::Utf8 {
        let end = if trimmed {
            bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1)
        } else {
            bytes.len()
        };
        return write_utf8(&bytes[..end], out);
    }
    write_converted(charset, trimmed, bytes, out);
}

#[inline(never)]
fn write_converted(charset: Charset, trimmed: bool, bytes: &[u8], out: &mut Vec<u8>) {
    // Converted in place: what needs escapes is taken out and written again.
    out.push(b'"');
    let start = out.len();
    charset.append(bytes, out);
    if trimmed {
        let spaces = out[start..].iter().rev().take_while(|byte| **byte == b' ').count();
        out.truncate(out.len() - spaces);
    }
    if !out[start..].iter().all(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\') {
        let text = out.split_off(start);
        escape(&text, out);
    }
    out.push(b'"');
}

pub fn write_base64(bytes: &[u8], zeros: usize, out: &mut Vec<u8>) {
    out.push(b'"');
    encode::write_base64(bytes, zeros, out);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_read_back(text in "\\PC*|[\\x00-\\x7f]{0,40}") {
            let mut out = Vec::new();
            write_text(&text, &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn any_bytes_are_a_string(bytes: Vec<u8>) {
            let mut out = Vec::new();
            write_utf8(&bytes, &mut out);
            prop_assert!(serde_json::from_slice::<String>(&out).is_ok());
        }
    }

    #[test]
    fn other_character_sets_are_converted_and_escaped() {
        let latin1 = Charset::from_name("latin1").unwrap();
        let mut out = Vec::new();
        write_string(latin1, true, b"gr\xf6\"\\\n  ", &mut out);
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), "grö\"\\\n");
    }
}
