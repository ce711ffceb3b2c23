//! Writes strings of a document in quotes. Most are short and need no escapes: those are checked and written
//! as one 128-bit word.

use std::io::Write;
use std::ops::Range;

const ONES: u128 = u128::MAX / 255;
const HIGHS: u128 = ONES * 0x80;

/// Appends the string at `range` of `data`. After a key, it also appends a colon and a space.
#[inline]
pub(super) fn string<const KEY: bool>(data: &[u8], range: Range<usize>, out: &mut Vec<u8>) {
    const ENDS: [u128; 2] = [0x22, 0x20_3a22];
    let behind = if KEY { 3 } else { 1 };
    let length = range.len();
    if length + 1 + behind <= 16 {
        if let Some(word) = load(data, &range) {
            let used = (1 << (8 * length)) - 1;
            let word = word & used;
            if !any_escape(word | !used) {
                let whole = 0x22 | word << 8 | ENDS[usize::from(KEY)] << (8 * (length + 1));
                out.extend_from_slice(&whole.to_le_bytes());
                out.truncate(out.len() - (16 - 1 - behind - length));
                return;
            }
        }
    }
    long_string::<KEY>(&data[range], out);
}

/// 16 bytes that begin with the string. Near the end of `data`, earlier bytes are read and moved. The bytes
/// after the string are arbitrary.
#[inline]
fn load(data: &[u8], range: &Range<usize>) -> Option<u128> {
    if let Some(chunk) = data.get(range.start..).and_then(<[u8]>::first_chunk) {
        return Some(u128::from_le_bytes(*chunk));
    }
    let chunk = data.get(..range.end).and_then(<[u8]>::last_chunk)?;
    let unused = 8 * (16 - range.len()) as u32;
    Some(u128::from_le_bytes(*chunk).checked_shr(unused).unwrap_or(0))
}

/// Whether one of 16 bytes must be escaped: `"`, `\`, or a byte below the space.
#[inline]
fn any_escape(word: u128) -> bool {
    // With bit 1 inverted, `"` becomes a space, and bytes below the space stay below it. All of them are
    // below 0x21 then.
    let low = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * 0x5c)).wrapping_sub(ONES);
    (low | backslash) & !word & HIGHS != 0
}

#[inline(never)]
fn long_string<const KEY: bool>(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 4);
    out.push(b'"');
    if is_plain(text) {
        out.extend_from_slice(text);
    } else {
        text.iter().for_each(|byte| write_escaped(*byte, out));
    }
    out.extend_from_slice(if KEY { b"\": " } else { b"\"" });
}

fn is_plain(text: &[u8]) -> bool {
    let chunks = text.chunks_exact(16);
    let rest = chunks.remainder();
    let escape =
        |chunk: &[u8]| chunk.first_chunk().is_some_and(|chunk| any_escape(u128::from_le_bytes(*chunk)));
    !chunks.into_iter().any(escape) && !rest.iter().any(|byte| needs_escape(*byte))
}

#[inline]
fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn write_escaped(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        0..=0x1f => {
            let _ = write!(out, "\\u{byte:04x}");
            return;
        }
        _ => return out.push(byte),
    };
    out.extend([b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Among other bytes, so that each way to load a string is taken.
        #[test]
        fn strings_are_their_bytes_in_quotes_with_escapes(
            before in proptest::collection::vec(any::<u8>(), 0..20),
            text in proptest::collection::vec(prop_oneof![0x1d..0x24_u8, 0x5a..0x5e_u8, any::<u8>()], 0..40),
            plain in "[a-z éß]{0,14}",
            behind in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            for text in [text.as_slice(), plain.as_bytes()] {
                let data = [before.as_slice(), text, behind.as_slice()].concat();
                let mut inner = Vec::new();
                text.iter().for_each(|byte| write_escaped(*byte, &mut inner));
                let range = before.len()..before.len() + text.len();
                let (mut value, mut key) = (b"x".to_vec(), b"x".to_vec());
                string::<false>(&data, range.clone(), &mut value);
                string::<true>(&data, range, &mut key);
                prop_assert_eq!(value, [b"x\"", inner.as_slice(), b"\""].concat());
                prop_assert_eq!(key, [b"x\"", inner.as_slice(), b"\": "].concat());
            }
        }

        #[test]
        fn a_byte_is_found_wherever_it_is(word: [u8; 16]) {
            let expected = word.iter().any(|byte| needs_escape(*byte));
            prop_assert_eq!(any_escape(u128::from_le_bytes(word)), expected);
        }
    }

    #[test]
    fn each_byte_that_needs_an_escape_is_found() {
        for byte in 0..=255_u8 {
            for place in 0..16 {
                let mut word = [b'a'; 16];
                word[place] = byte;
                assert_eq!(any_escape(u128::from_le_bytes(word)), needs_escape(byte), "{byte:#x}");
            }
        }
    }
}
