//! `numeric` in its binary form: a head, then digits to the base 10,000
//! (`numeric_send` in the server's `numeric.c`).

use super::binary::wrong;
use super::types::MONEY_SCALE;
use crate::digits::write_padded;
use crate::error::ValueError;

const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const MINUS_INFINITY: u16 = 0xf000;
const DIGIT_MAX: u16 = 9999;
const BASE: i64 = 10_000;
/// Digits of numbers that fit into 64 bits, and exponents of which the power of ten does.
const SHORT_DIGITS: usize = 4;
const SHORT_EXPONENT: i32 = 18;

pub struct Numeric<'a> {
    /// Two bytes for each digit.
    digits: &'a [u8],
    /// The exponent of the first digit.
    weight: i32,
    sign: u16,
    /// Decimal digits behind the point.
    scale: usize,
}

impl<'a> Numeric<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ValueError> {
        let Some((head, digits)) = bytes.split_first_chunk::<8>() else { return Err(wrong("a numeric")) };
        let field = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let found =
            Self { digits, weight: i32::from(field(2) as i16), sign: field(4), scale: usize::from(field(6)) };
        let known = matches!(found.sign, 0 | NEGATIVE | NOT_A_NUMBER | INFINITY | MINUS_INFINITY);
        let fits = digits.len() == 2 * usize::from(field(0));
        if !known || !fits || found.scale > 0x3fff || found.each().any(|digit| digit > DIGIT_MAX) {
            return Err(wrong("a numeric"));
        }
        Ok(found)
    }

    fn each(&self) -> impl Iterator<Item = u16> + '_ {
        self.digits.chunks_exact(2).map(|digit| u16::from_be_bytes([digit[0], digit[1]]))
    }

    /// Whether it is NaN or infinite.
    pub fn is_special(&self) -> bool {
        self.sign & NOT_A_NUMBER == NOT_A_NUMBER
    }

    /// The number times 10^scale. None: it is no number, or does not fit.
    pub fn unscaled(&self, scale: u8) -> Option<i128> {
        if self.is_special() {
            return None;
        }
        let last = 4 * (self.weight + 1 - (self.digits.len() / 2) as i32) + i32::from(scale);
        if self.digits.len() <= 2 * SHORT_DIGITS && (-SHORT_EXPONENT..=SHORT_EXPONENT).contains(&last) {
            let value = self.each().fold(0, |value, digit| value * BASE + i64::from(digit));
            let unit = 10_i64.pow(last.unsigned_abs());
            let value = match last {
                0.. => i128::from(value) * i128::from(unit),
                _ if value % unit == 0 => i128::from(value / unit),
                _ => return None,
            };
            return Some(if self.sign == NEGATIVE { -value } else { value });
        }
        let mut value = 0_i128;
        for (digit, exponent) in
            self.each().zip((0..).map(|index| 4 * (self.weight - index) + i32::from(scale)))
        {
            let digit = i128::from(digit);
            let part = match u32::try_from(exponent) {
                Ok(exponent) if digit != 0 => digit.checked_mul(10_i128.checked_pow(exponent)?)?,
                Ok(_) => 0,
                Err(_) if exponent > -4 => {
                    let unit = 10_i128.pow(exponent.unsigned_abs());
                    if digit % unit != 0 {
                        return None;
                    }
                    digit / unit
                }
                Err(_) if digit == 0 => 0,
                Err(_) => return None,
            };
            value = value.checked_add(part)?;
        }
        Some(if self.sign == NEGATIVE { -value } else { value })
    }

    /// As SELECT prints it.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        match self.sign {
            NOT_A_NUMBER => return out.extend_from_slice(b"NaN"),
            INFINITY => return out.extend_from_slice(b"Infinity"),
            MINUS_INFINITY => return out.extend_from_slice(b"-Infinity"),
            NEGATIVE => out.push(b'-'),
            _ => {}
        }
        let digit = |index: i32| {
            let at = usize::try_from(index).ok().and_then(|index| self.digits.chunks_exact(2).nth(index));
            at.map_or(0, |digit| u32::from(u16::from_be_bytes([digit[0], digit[1]])))
        };
        let start = out.len();
        for index in 0..=self.weight {
            write_padded(digit(index), 4, out);
        }
        let zeros = out[start..].iter().take_while(|byte| **byte == b'0').count();
        out.drain(start..start + zeros);
        if out.len() == start {
            out.push(b'0');
        }
        if self.scale > 0 {
            out.push(b'.');
            let end = out.len() + self.scale;
            for index in (self.weight + 1..).take(self.scale.div_ceil(4)) {
                write_padded(digit(index), 4, out);
            }
            out.truncate(end);
        }
    }
}

/// A number from its text.
pub fn parsed<T: std::str::FromStr>(text: &[u8]) -> Result<T, ValueError> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| wrong("a number"))
}

/// With the signs of a currency and of thousands: `-$1,000.00`.
pub fn money(text: &[u8]) -> Result<i128, ValueError> {
    let digits: Vec<u8> = text.iter().copied().filter(u8::is_ascii_digit).collect();
    let value: i128 = parsed(&digits)?;
    Ok(if text.iter().any(|byte| matches!(byte, b'-' | b'(')) { -value } else { value })
}

/// Without signs of a currency and of thousands.
pub fn write_money(cents: i128, out: &mut Vec<u8>) {
    let unit = 10_u128.pow(MONEY_SCALE.into());
    let (whole, rest) = (cents.unsigned_abs() / unit, cents.unsigned_abs() % unit);
    let sign = if cents < 0 { "-" } else { "" };
    out.extend_from_slice(format!("{sign}{whole}.{rest:02}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(weight: i16, sign: u16, scale: u16, digits: &[u16]) -> Vec<u8> {
        let head = [digits.len() as u16, weight as u16, sign, scale];
        head.iter().chain(digits).flat_map(|number| number.to_be_bytes()).collect()
    }

    fn text(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        Numeric::parse(bytes).unwrap().write_text(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_those_that_select_prints() {
        for (bytes, shown, unscaled) in [
            (bytes(0, 0, 0, &[]), "0", Some(0)),
            (bytes(0, 0, 2, &[]), "0.00", Some(0)),
            (bytes(0, 0, 2, &[12, 3400]), "12.34", Some(1234)),
            (bytes(0, NEGATIVE, 2, &[12, 3400]), "-12.34", Some(-1234)),
            (bytes(-1, 0, 2, &[500]), "0.05", Some(5)),
            (bytes(-2, 0, 8, &[1]), "0.00000001", None),
            (bytes(1, 0, 0, &[1]), "10000", Some(1_000_000)),
            (bytes(2, 0, 1, &[7, 0, 1, 5000]), "700000001.5", Some(70_000_000_150)),
            (bytes(0, NOT_A_NUMBER, 0, &[]), "NaN", None),
            (bytes(0, INFINITY, 0, &[]), "Infinity", None),
            (bytes(0, MINUS_INFINITY, 0, &[]), "-Infinity", None),
        ] {
            assert_eq!(text(&bytes), shown);
            assert_eq!(Numeric::parse(&bytes).unwrap().unscaled(2), unscaled, "{shown}");
        }
    }

    #[test]
    fn bytes_that_are_no_numeric_are_refused() {
        for bad in [vec![], vec![0; 7], bytes(0, 0, 0, &[10_000]), bytes(0, 1, 0, &[]), {
            let mut short = bytes(0, 0, 0, &[1, 2]);
            short.pop();
            short
        }] {
            assert!(Numeric::parse(&bad).is_err());
        }
    }
}
