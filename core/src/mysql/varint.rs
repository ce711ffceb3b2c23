//! Integers of variable length, as MySQL's serialization library writes them (GTID events with tags).

use crate::cursor::Cursor;
use crate::error::Result;

/// The first byte has as many low one-bits as there are further bytes, then a zero. The rest is the value.
pub(crate) fn take_varint(cursor: &mut Cursor<'_>, what: &'static str) -> Result<u64> {
    let head = cursor.u8(what)?;
    let more = head.trailing_ones() as usize;
    let rest = cursor.uint_le(more, what)?;
    Ok(match more {
        8 => rest,
        7 => rest,
        _ => u64::from(head) >> (more + 1) | rest << (7 - more),
    })
}

/// A signed integer: its lowest bit is the sign.
pub(crate) fn take_signed_varint(cursor: &mut Cursor<'_>, what: &'static str) -> Result<i64> {
    let raw = take_varint(cursor, what)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_length_integers_of_every_width() {
        // Values and bytes as the server's library writes them.
        for (bytes, value) in [
            (&[0x02_u8][..], 1_u64),
            (&[0xfe], 127),
            (&[0x01, 0x02], 128),
            (&[0xfd, 0xff], 16383),
            (&[0xff, 1, 2, 3, 4, 5, 6, 7, 8], 0x0807_0605_0403_0201),
        ] {
            assert_eq!(take_varint(&mut Cursor::new(bytes, 0), "x").unwrap(), value);
        }
    }
}
