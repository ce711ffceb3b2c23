//! Integers as decimal digits. Eight digits are computed at once in one word, without a loop over them.

const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight digits of a number below 100,000,000, the first one in the lowest byte, as values 0 to 9.
#[inline]
fn eight(value: u32) -> u64 {
    // Halves of four digits, quarters of two, then single ones; each lane is divided by a multiplication.
    let halves = u64::from(value / 10_000) | (u64::from(value % 10_000) << 32);
    let hundreds = ((halves * 5243) >> 19) & 0x0000_007f_0000_007f;
    let quarters = hundreds | ((halves - hundreds * 100) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((quarters - tens * 10) << 8)
}

/// Appends the number without leading zeros.
#[inline]
pub fn write_u64(value: u64, out: &mut Vec<u8>) {
    match u32::try_from(value) {
        Ok(value) if value < 10 => out.push(b'0' + value as u8),
        Ok(value) if value < 10_000 => write_four(value, out),
        Ok(value) if value < 100_000_000 => write_short(value, out),
        _ => write_long(value, out),
    }
}

#[inline]
pub fn write_i64(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_u64(value.unsigned_abs(), out);
}

/// Does the same as `write_short` for a number below 10,000.
#[inline]
fn write_four(value: u32, out: &mut Vec<u8>) {
    let hundreds = (value * 5243) >> 19;
    let quarters = hundreds | ((value - hundreds * 100) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f;
    let digits = tens | ((quarters - tens * 10) << 8);
    let leading = (digits.trailing_zeros() / 8).min(3);
    out.extend_from_slice(&((digits | ZEROS as u32) >> (8 * leading)).to_le_bytes());
    out.truncate(out.len() - leading as usize);
}

#[inline]
fn write_short(value: u32, out: &mut Vec<u8>) {
    let digits = eight(value);
    // At least the last digit stays, also when it is a zero.
    let leading = (digits.trailing_zeros() / 8).min(7);
    out.extend_from_slice(&((digits | ZEROS) >> (8 * leading)).to_le_bytes());
    out.truncate(out.len() - leading as usize);
}

#[inline(never)]
fn write_long(value: u64, out: &mut Vec<u8>) {
    const STEP: u64 = 100_000_000;
    match value / STEP {
        0 => write_short(value as u32, out),
        high => {
            write_u64(high, out);
            out.extend_from_slice(&(eight((value % STEP) as u32) | ZEROS).to_le_bytes());
        }
    }
}

/// Appends a number below 100,000,000 with zeros before it, so that it has `width` (1 to 8) digits, or more
/// if it is larger.
#[inline]
pub fn write_padded(value: u32, width: usize, out: &mut Vec<u8>) {
    let digits = eight(value);
    let leading = (digits.trailing_zeros() / 8).min(8 - width as u32);
    out.extend_from_slice(&((digits | ZEROS) >> (8 * leading)).to_le_bytes());
    out.truncate(out.len() - leading as usize);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = b"before".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_pair_of_digits_at_every_place() {
        for power in 0..7 {
            for number in 0..10_000 {
                let value = number * 10_u32.pow(power) % 100_000_000;
                assert_eq!(text(|out| write_u64(value.into(), out)), format!("before{value}"));
                assert_eq!(text(|out| write_padded(value, 8, out)), format!("before{value:08}"));
            }
        }
    }

    proptest! {
        #[test]
        fn numbers_are_their_digits(value: u64, shift in 0..64, width in 1..=8_usize) {
            let value = value >> shift;
            prop_assert_eq!(text(|out| write_u64(value, out)), format!("before{value}"));
            let signed = value as i64;
            prop_assert_eq!(text(|out| write_i64(signed, out)), format!("before{signed}"));
            let short = (value % 100_000_000) as u32;
            prop_assert_eq!(text(|out| write_padded(short, width, out)), format!("before{short:0width$}"));
        }
    }
}
