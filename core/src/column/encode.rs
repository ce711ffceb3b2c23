//! Binary values as text: hexadecimal digits and Base64.

/// Appends upper-case hexadecimal digits of the value and of `zeros` zero bytes after it.
pub fn write_hex(value: &[u8], zeros: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(2 * (value.len() + zeros));
    for byte in value {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out.resize(out.len() + 2 * zeros, b'0');
}

/// Appends Base64 (RFC 4648, with padding, without line breaks) of the value and of `zeros` zero bytes after
/// it.
pub fn write_base64(value: &[u8], zeros: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| DIGITS[(bits & 63) as usize];
    out.reserve((value.len() + zeros).div_ceil(3) * 4);
    let whole = value.chunks_exact(3);
    let rest = whole.remainder();
    for group in whole {
        let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        out.extend_from_slice(&[digit(bits >> 18), digit(bits >> 12), digit(bits >> 6), digit(bits)]);
    }
    let length = rest.len() + zeros;
    for start in (0..length).step_by(3) {
        let byte = |place: usize| u32::from(rest.get(start + place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            out.push(if place <= length - start { digit(bits >> (18 - 6 * place)) } else { b'=' });
        }
    }
}

/// Decodes text written by `write_hex`; None: it is not hexadecimal.
pub fn read_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

/// Decodes text written by `write_base64`; None: it is not Base64.
pub fn read_base64(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        Some(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.chunks(4) {
        let [.., _] = group.first_chunk::<4>()?;
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        let mut bits = 0_u32;
        for byte in &group[..4 - padding.min(2)] {
            bits = bits << 6 | u32::from(digit(*byte)?);
        }
        bits <<= 6 * padding.min(2);
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding.min(2)]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_of_bytes_reads_back(
            bytes in proptest::collection::vec(any::<u8>(), 0..70),
            zeros in 0..5_usize,
        ) {
            let (mut hex, mut base64) = (Vec::new(), Vec::new());
            write_hex(&bytes, zeros, &mut hex);
            write_base64(&bytes, zeros, &mut base64);
            let mut whole = bytes.clone();
            whole.resize(bytes.len() + zeros, 0);
            prop_assert_eq!(read_hex(&hex), Some(whole.clone()));
            prop_assert_eq!(read_base64(&base64), Some(whole));
        }

        #[test]
        fn any_text_is_bytes_or_none(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (read_hex(&text), read_base64(&text));
        }
    }

    #[test]
    fn base64_pads_to_groups_of_four() {
        for (bytes, expected) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v")] {
            let mut out = Vec::new();
            write_base64(bytes, 0, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
