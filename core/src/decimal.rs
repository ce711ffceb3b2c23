//! MySQL's binary DECIMAL: groups of nine digits in four bytes, big-endian, the most significant one first.
//! The groups at both ends of the number may be shorter. The first bit is the sign (set: not negative).
//! Negative numbers have all bits inverted, so that images compare as bytes.

use crate::digits::write_padded;
use crate::error::ValueError;

/// Number of bytes for 0 to 9 digits.
const GROUP_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const POWERS: [u32; 10] =
    [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// Bytes of the image of 38 digits, and some more.
const IMAGE_BYTES: usize = 24;
/// 10^n, as far as 128 bits have it.
const TENS: [u128; 39] = {
    let (mut tens, mut index) = ([1; 39], 1);
    while index < tens.len() {
        tens[index] = tens[index - 1] * 10;
        index += 1;
    }
    tens
};

/// A number with all bits of so many bytes set.
const MASKS: [u32; 5] = [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff];

/// The image of a DECIMAL(precision, scale) in a row.
#[derive(Debug, Clone, Copy)]
pub struct DecimalImage<'a> {
    bytes: &'a [u8],
    precision: u8,
    scale: u8,
}

/// Size of the image of a DECIMAL(precision, scale). The scale must not exceed the precision.
pub const fn image_size(precision: u8, scale: u8) -> usize {
    let integral = precision as usize - scale as usize;
    let scale = scale as usize;
    integral / 9 * 4 + GROUP_BYTES[integral % 9] + scale / 9 * 4 + GROUP_BYTES[scale % 9]
}

impl<'a> DecimalImage<'a> {
    /// `bytes` must be exactly `image_size(precision, scale)`.
    pub fn new(bytes: &'a [u8], precision: u8, scale: u8) -> Result<Self, ValueError> {
        if scale > precision || precision == 0 || bytes.len() != image_size(precision, scale) {
            return Err(ValueError::new(format!(
                "{} bytes cannot be a DECIMAL({precision},{scale})",
                bytes.len()
            )));
        }
        Ok(Self { bytes, precision, scale })
    }

    #[inline]
    fn negative(self) -> bool {
        self.bytes[0] & 0x80 == 0
    }

    /// Calls `group(digits, value)` for each group from the left, the integral ones first.
    #[inline]
    fn groups(self, mut group: impl FnMut(usize, u32)) -> Result<(), ValueError> {
        let integral = usize::from(self.precision - self.scale);
        let scale = usize::from(self.scale);
        let flip = if self.negative() { u32::MAX } else { 0 };
        let (mut rest, mut sign) = (self.bytes, 0x80);
        let mut read = |digits: usize| {
            let value = read_group(&mut rest, digits, sign, flip)?;
            sign = 0;
            group(digits, value);
            Ok::<(), ValueError>(())
        };
        if integral % 9 > 0 {
            read(integral % 9)?;
        }
        for _ in 0..integral / 9 + scale / 9 {
            read(9)?;
        }
        if scale % 9 > 0 {
            read(scale % 9)?;
        }
        Ok(())
    }

    /// The number times 10^scale. The precision must be at most 38.
    #[inline]
    pub fn unscaled(self) -> Result<i128, ValueError> {
        if let Some(groups) = Groups::short(self.precision, self.scale) {
            return groups.unscaled(self.bytes).map(i128::from);
        }
        let mut value = 0_i128;
        self.groups(|digits, group| value = value.wrapping_mul(POWERS[digits].into()) + i128::from(group))?;
        Ok(if self.negative() { -value } else { value })
    }

    /// As SELECT prints it: no leading zeros but one before the point, all digits of the scale.
    pub fn write_text(self, out: &mut Vec<u8>) -> Result<(), ValueError> {
        let start = out.len();
        self.groups(|digits, value| {
            if digits == 9 {
                out.push(b'0' + (value / POWERS[8]) as u8);
            }
            write_padded(value % POWERS[8], digits.min(8), out);
        })?;
        // Now all `precision` digits stand there.
        let point = out.len() - usize::from(self.scale);
        let zeros = out[start..point].iter().take_while(|digit| **digit == b'0').count();
        let integral = point - start - zeros;
        out.drain(start..start + zeros);
        if integral == 0 {
            out.insert(start, b'0');
        }
        if self.negative() {
            out.insert(start, b'-');
        }
        if self.scale > 0 {
            out.insert(out.len() - usize::from(self.scale), b'.');
        }
        Ok(())
    }
}

/// Takes a group of digits from the bytes. `sign`: the bit to invert in its first byte.
#[inline(always)]
fn read_group(rest: &mut &[u8], digits: usize, sign: u8, flip: u32) -> Result<u32, ValueError> {
    let width = GROUP_BYTES[digits];
    let Some((bytes, behind)) = rest.split_at_checked(width) else { return Err(short()) };
    *rest = behind;
    let value = match *bytes {
        [a] => u32::from(a ^ sign),
        [a, b] => u32::from(u16::from_be_bytes([a ^ sign, b])),
        [a, b, c] => u32::from_be_bytes([0, a ^ sign, b, c]),
        [a, b, c, d] => u32::from_be_bytes([a ^ sign, b, c, d]),
        _ => 0,
    };
    let value = value ^ flip & MASKS[width];
    if value >= POWERS[digits] {
        return Err(too_large());
    }
    Ok(value)
}

/// The groups of a number of at most 18 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// Digits of the shorter groups at both ends, and how many of nine are between them.
    head: u8,
    whole: u8,
    tail: u8,
}

impl Groups {
    /// None: the number may have more than 18 digits, or it has none.
    #[inline]
    pub fn short(precision: u8, scale: u8) -> Option<Self> {
        let integral = precision.checked_sub(scale)?;
        let groups = Self { head: integral % 9, whole: integral / 9 + scale / 9, tail: scale % 9 };
        (1..=18).contains(&precision).then_some(groups)
    }

    /// The number times 10^scale. `bytes`: exactly those of the image.
    #[inline]
    pub fn unscaled(self, bytes: &[u8]) -> Result<i64, ValueError> {
        let negative = bytes.first().is_some_and(|first| first & 0x80 == 0);
        let flip = if negative { u32::MAX } else { 0 };
        let (mut rest, mut sign, mut value) = (bytes, 0x80, 0_i64);
        if self.head > 0 {
            value = read_group(&mut rest, self.head.into(), sign, flip)?.into();
            sign = 0;
        }
        for _ in 0..self.whole {
            value = value * i64::from(POWERS[9]) + i64::from(read_group(&mut rest, 9, sign, flip)?);
            sign = 0;
        }
        if self.tail > 0 {
            let tail = usize::from(self.tail);
            value = value * i64::from(POWERS[tail]) + i64::from(read_group(&mut rest, tail, sign, flip)?);
        }
        Ok(if negative { -value } else { value })
    }
}

#[cold]
fn too_large() -> ValueError {
    ValueError::new("a group of digits of a decimal is too large")
}

#[cold]
fn short() -> ValueError {
    ValueError::new("a decimal without all its bytes")
}

/// Appends the image of a DECIMAL(precision, scale) of at most 38 digits, from its number times 10^scale.
/// None: the number has more digits.
pub fn write_image(
    negative: bool,
    magnitude: u128,
    precision: u8,
    scale: u8,
    out: &mut Vec<u8>,
) -> Option<()> {
    let (mut digits, mut left) = ([0_u8; 65], magnitude);
    let digits = digits.get_mut(..usize::from(precision))?;
    for digit in digits.iter_mut().rev() {
        *digit = (left % 10) as u8;
        left /= 10;
    }
    (left == 0).then(|| write_digits(negative, digits, scale, out))
}

/// Gives the image of a number times 10^scale to `take`.
#[inline(never)]
pub fn with_image(
    unscaled: i128,
    precision: u8,
    scale: u8,
    take: impl FnOnce(DecimalImage<'_>) -> Result<(), ValueError>,
) -> Result<(), ValueError> {
    let mut image = Vec::with_capacity(IMAGE_BYTES);
    write_image(unscaled < 0, unscaled.unsigned_abs(), precision, scale, &mut image)
        .ok_or_else(|| ValueError::new(format!("a number that is no DECIMAL({precision},{scale})")))?;
    take(DecimalImage::new(&image, precision, scale)?)
}

/// Whether a number has at most so many digits.
#[inline]
pub fn fits(unscaled: i128, precision: u8) -> bool {
    TENS.get(usize::from(precision)).is_none_or(|limit| unscaled.unsigned_abs() < *limit)
}

/// Writes the image of a number from its text, as SELECT prints it.
pub fn write_image_of_text(text: &[u8], precision: u8, scale: u8, out: &mut Vec<u8>) -> Option<()> {
    let negative = text.first() == Some(&b'-');
    let text = &text[usize::from(negative)..];
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let (integral, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    let mut digits = [0_u8; 65];
    let digits = digits.get_mut(..usize::from(precision))?;
    let point = digits.len().checked_sub(scale.into())?;
    let is_number = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if !is_number(integral) || !is_number(fraction) || integral.is_empty() || fraction.len() > scale.into() {
        return None;
    }
    let zeros = integral.iter().take_while(|byte| **byte == b'0').count();
    let integral = &integral[zeros..];
    let start = point.checked_sub(integral.len())?;
    for (digit, byte) in digits[start..].iter_mut().zip(integral.iter().chain(fraction)) {
        *digit = byte - b'0';
    }
    write_digits(negative && digits.iter().any(|digit| *digit != 0), digits, scale, out);
    Some(())
}

/// `digits`: as many as the precision says.
fn write_digits(negative: bool, digits: &[u8], scale: u8, out: &mut Vec<u8>) {
    let start = out.len();
    let (integral, fraction) = digits.split_at(digits.len() - usize::from(scale));
    let (head, whole) = integral.split_at(integral.len() % 9);
    for group in std::iter::once(head).chain(whole.chunks(9)).chain(fraction.chunks(9)) {
        let value = group.iter().fold(0_u32, |value, digit| value * 10 + u32::from(*digit));
        out.extend_from_slice(&value.to_be_bytes()[4 - GROUP_BYTES[group.len()]..]);
    }
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    out[start] ^= 0x80;
}

/// A number without a declared precision: what its text says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plain<'a> {
    /// Digits with an optional sign and point.
    Digits(&'a [u8]),
    NotNumber(f64),
}

impl<'a> Plain<'a> {
    pub fn parse(text: &'a [u8]) -> Result<Self, ValueError> {
        Ok(match text {
            b"NaN" => Self::NotNumber(f64::NAN),
            b"Infinity" => Self::NotNumber(f64::INFINITY),
            b"-Infinity" => Self::NotNumber(f64::NEG_INFINITY),
            _ => {
                let digits = text.strip_prefix(b"-").unwrap_or(text);
                let mut parts = digits.splitn(2, |byte| *byte == b'.');
                let are_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
                if !parts.all(are_digits) {
                    return Err(ValueError::new("text that is no decimal number"));
                }
                Self::Digits(text)
            }
        })
    }

    /// Digits after the point.
    pub fn scale(digits: &[u8]) -> usize {
        digits.iter().rev().position(|byte| *byte == b'.').unwrap_or(0)
    }
}

/// Text of a number without the zeros at the end of its fraction.
pub fn without_zeros(text: &[u8]) -> &[u8] {
    let zeros = text.iter().rev().take_while(|byte| **byte == b'0').count();
    match text[..text.len() - zeros].split_last() {
        Some((b'.', whole)) => whole,
        _ if text.contains(&b'.') => &text[..text.len() - zeros],
        _ => text,
    }
}

/// The double nearest to a decimal written as text.
pub fn nearest_double(text: &[u8]) -> Result<f64, ValueError> {
    let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    value.filter(|value| value.is_finite()).ok_or_else(|| ValueError::new("text that is no decimal number"))
}

/// Text of a number without the zeros that ZEROFILL puts before it.
pub fn without_padding(text: &[u8]) -> &[u8] {
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    match text.get(zeros) {
        Some(b'0'..=b'9') => &text[zeros..],
        _ => &text[zeros.saturating_sub(1)..],
    }
}

/// The unscaled value of a decimal written as text with exactly `scale` digits after the point or fewer.
pub fn parse_text(text: &[u8], precision: u8, scale: u8) -> Result<i128, ValueError> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let (mut value, mut count, mut fraction) = (0_i128, 0_u8, None);
    // Most numbers fit into one word, which is several times quicker than two.
    let (mut word, is_short) = (0_u64, digits.len() <= 18);
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                // Leading zeros are no digits of the number.
                count += u8::from(count > 0 || *byte != b'0');
                if count > 38 {
                    break;
                }
                let digit = byte - b'0';
                match is_short {
                    true => word = word * 10 + u64::from(digit),
                    false => value = value * 10 + i128::from(digit),
                }
                fraction = fraction.map(|digits: u8| digits.saturating_add(1));
            }
            b'.' if fraction.is_none() => fraction = Some(0),
            _ => return Err(ValueError::new("text that is no decimal number")),
        }
    }
    let missing = scale.checked_sub(fraction.unwrap_or(0));
    match missing {
        Some(missing) if !digits.is_empty() && count.saturating_add(missing) <= precision.max(missing) => {
            let value = (value + i128::from(word)) * 10_i128.pow(missing.into());
            Ok(if negative { -value } else { value })
        }
        _ => Err(ValueError::new(format!("a number that is no DECIMAL({precision},{scale})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The image of digits, by the description at the head of this file, digit by digit.
    fn image(negative: bool, digits: &str, precision: u8, scale: u8) -> Vec<u8> {
        let (integral, fraction) = digits.split_at((precision - scale).into());
        let mut groups: Vec<&str> = Vec::new();
        let head = integral.len() % 9;
        groups.push(&integral[..head]);
        groups.extend(integral.as_bytes()[head..].chunks(9).map(|c| std::str::from_utf8(c).unwrap()));
        groups.extend(fraction.as_bytes().chunks(9).map(|c| std::str::from_utf8(c).unwrap()));
        let mut bytes: Vec<u8> = Vec::new();
        for group in groups.into_iter().filter(|group| !group.is_empty()) {
            let value: u32 = group.parse().unwrap();
            bytes.extend(&value.to_be_bytes()[4 - GROUP_BYTES[group.len()]..]);
        }
        bytes[0] ^= 0x80;
        if negative {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        bytes
    }

    #[test]
    fn numbers_without_a_precision_are_digits_or_none() {
        for (text, scale, shortest) in
            [("0", 0, "0"), ("-12.50", 2, "-12.5"), ("700", 0, "700"), ("0.00", 2, "0"), ("1.01", 2, "1.01")]
        {
            assert_eq!(Plain::parse(text.as_bytes()).unwrap(), Plain::Digits(text.as_bytes()));
            assert_eq!(Plain::scale(text.as_bytes()), scale);
            assert_eq!(without_zeros(text.as_bytes()), shortest.as_bytes());
        }
        assert_eq!(Plain::parse(b"-Infinity").unwrap(), Plain::NotNumber(f64::NEG_INFINITY));
        for wrong in ["", "-", ".", "1.", ".5", "1e5", "nan", "+1", "1.2.3", "--1"] {
            assert!(Plain::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn images_give_their_digits_back(
            precision in 1..=65_u8,
            part in 0.0..=1.0_f64,
            negative: bool,
            digits in "[0-9]{65}",
        ) {
            let scale = (f64::from(precision) * part) as u8;
            let digits = &digits[..precision.into()];
            let bytes = image(negative, digits, precision, scale);
            let decimal = DecimalImage::new(&bytes, precision, scale).unwrap();
            let mut text = Vec::new();
            decimal.write_text(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let (integral, fraction) = digits.split_at((precision - scale).into());
            let integral = integral.trim_start_matches('0');
            let expected = format!(
                "{}{}{}{fraction}",
                if negative { "-" } else { "" },
                if integral.is_empty() { "0" } else { integral },
                if scale > 0 { "." } else { "" },
            );
            prop_assert_eq!(&text, &expected);
            if precision <= 38 {
                let value: i128 = digits.parse().unwrap();
                let value = if negative { -value } else { value };
                prop_assert_eq!(decimal.unscaled().unwrap(), value);
                prop_assert_eq!(parse_text(text.as_bytes(), precision, scale).unwrap(), value);
            }
        }

        #[test]
        fn any_bytes_are_a_number_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            precision in 0..=70_u8,
            scale in 0..=70_u8,
        ) {
            if let Ok(decimal) = DecimalImage::new(&bytes, precision, scale) {
                let _ = decimal.write_text(&mut Vec::new());
                if precision <= 38 { let _ = decimal.unscaled(); }
            }
            let _ = parse_text(&bytes, 38, 10);
        }
    }
}
