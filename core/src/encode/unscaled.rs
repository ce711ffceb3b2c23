//! Decimals as Connect and Debezium have them: the number times 10^scale in the fewest bytes, big-endian,
//! with a sign. Numbers without a declared precision bring their scale along.

use crate::decimal::{nearest_double, Plain};
use crate::error::ValueError;

/// The scale of a number, and its bytes.
pub fn with_scale(text: &[u8]) -> Result<(usize, Vec<u8>), ValueError> {
    match Plain::parse(text)? {
        Plain::Digits(digits) => Ok((Plain::scale(digits), of_text(digits))),
        Plain::NotNumber(_) => Err(ValueError::new(
            "NaN or an infinity, which `decimal.handling.mode: precise` cannot write; use `string` or \
             `double`",
        )),
    }
}

pub fn double(text: &[u8]) -> Result<f64, ValueError> {
    match Plain::parse(text)? {
        Plain::Digits(digits) => nearest_double(digits),
        Plain::NotNumber(value) => Ok(value),
    }
}

/// As Debezium shows it with `decimal.handling.mode: string`.
pub fn shown(text: &[u8]) -> Result<&[u8], ValueError> {
    Ok(match Plain::parse(text)? {
        Plain::Digits(digits) => digits,
        Plain::NotNumber(value) if value.is_nan() => b"NAN",
        Plain::NotNumber(value) if value > 0.0 => b"POSITIVE_INFINITY",
        Plain::NotNumber(_) => b"NEGATIVE_INFINITY",
    })
}

/// Calls `take` with the bytes.
#[inline]
pub fn of_number<T>(value: i128, take: impl FnOnce(&[u8]) -> T) -> T {
    let bytes = value.to_be_bytes();
    let fill = if value < 0 { 0xff } else { 0 };
    let mut start = bytes.iter().take_while(|byte| **byte == fill).count().min(15);
    // The first bit is the sign.
    if start > 0 && (bytes[start] ^ fill) & 0x80 != 0 {
        start -= 1;
    }
    take(&bytes[start..])
}

/// The bytes of a number of more than 38 digits, from its text.
pub fn of_text(text: &[u8]) -> Vec<u8> {
    // Base 256, the lowest byte first.
    let mut bytes: Vec<u8> = vec![0];
    for digit in text.iter().filter(|byte| byte.is_ascii_digit()) {
        let mut carry = u32::from(digit - b'0');
        for byte in &mut bytes {
            let value = u32::from(*byte) * 10 + carry;
            *byte = value as u8;
            carry = value >> 8;
        }
        if carry > 0 {
            bytes.push(carry as u8);
        }
    }
    bytes.push(0);
    if text.first() == Some(&b'-') {
        let mut carry = true;
        for byte in &mut bytes {
            let (value, over) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (value, over);
        }
    }
    while let [.., below, top] = bytes.as_slice() {
        if (*top == 0 && below & 0x80 == 0) || (*top == 0xff && below & 0x80 != 0) {
            bytes.pop();
        } else {
            break;
        }
    }
    bytes.reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_fewest_bytes_and_a_sign() {
        let cases: [(i128, &[u8]); 8] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0, 0x80]),
            (-1, &[0xff]),
            (-128, &[0x80]),
            (-129, &[0xff, 0x7f]),
            (15_795, &[0x3d, 0xb3]),
            (u64::MAX as i128, &[0, 255, 255, 255, 255, 255, 255, 255, 255]),
        ];
        for (value, expected) in cases {
            assert_eq!(of_number(value, <[u8]>::to_vec), expected);
            assert_eq!(of_text(value.to_string().as_bytes()), expected);
        }
        let long = -184_467_440_737_095_516_150;
        assert_eq!(of_text(b"-18446744073709551615.0"), of_number(long, <[u8]>::to_vec));
    }
}
