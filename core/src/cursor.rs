//! Checked reads of bytes. Every parser of the core reads through a `Cursor`. Truncated input is an error
//! that names the field and the offset. A length in the input is not trusted before so many bytes have been
//! found.

use crate::error::{DecodeError, Result};

/// A place in some bytes. `base` is the offset of their first byte in the file or log.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    /// The number of all bytes, read or not.
    length: usize,
    base: u64,
}

macro_rules! fixed {
    ($(#[$doc:meta])* $name:ident, $type:ty, $convert:ident) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(&mut self, what: &'static str) -> Result<$type> {
            match self.rest.split_first_chunk() {
                Some((chunk, rest)) => {
                    self.rest = rest;
                    Ok(<$type>::$convert(*chunk))
                }
                None => Err(self.short(size_of::<$type>(), what)),
            }
        }
    };
}

impl<'a> Cursor<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], base: u64) -> Self {
        Self { rest: bytes, length: bytes.len(), base }
    }

    /// The offset of the next byte in the file or log.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base + self.position() as u64
    }

    #[inline]
    pub fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fixed!(u8, u8, from_le_bytes);
    fixed!(u16, u16, from_le_bytes);
    fixed!(u32, u32, from_le_bytes);
    fixed!(u64, u64, from_le_bytes);
    fixed!(i64, i64, from_le_bytes);
    fixed!(f32, f32, from_le_bytes);
    fixed!(f64, f64, from_le_bytes);

    #[inline]
    pub fn chunk<const N: usize>(&mut self, what: &'static str) -> Result<&'a [u8; N]> {
        match self.rest.split_first_chunk() {
            Some((chunk, rest)) => {
                self.rest = rest;
                Ok(chunk)
            }
            None => Err(self.short(N, what)),
        }
    }

    #[inline]
    pub fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(length) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.short(length, what)),
        }
    }

    #[inline]
    pub fn skip(&mut self, length: usize, what: &'static str) -> Result<()> {
        self.take(length, what).map(drop)
    }

    /// All bytes that were not read.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Little-endian unsigned integer of 0 to 8 bytes.
    #[inline(always)]
    pub fn uint_le(&mut self, width: usize, what: &'static str) -> Result<u64> {
        Ok(match width {
            1 => self.u8(what)?.into(),
            2 => self.u16(what)?.into(),
            3 => {
                let low = self.take(3, what)?;
                u64::from(low[0]) | u64::from(low[1]) << 8 | u64::from(low[2]) << 16
            }
            4 => self.u32(what)?.into(),
            8 => self.u64(what)?,
            _ => self.take(width, what)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        })
    }

    /// Big-endian unsigned integer of 0 to 8 bytes.
    #[inline(always)]
    pub fn uint_be(&mut self, width: usize, what: &'static str) -> Result<u64> {
        Ok(match width {
            1 => self.u8(what)?.into(),
            2 => self.u16(what)?.swap_bytes().into(),
            4 => self.u32(what)?.swap_bytes().into(),
            5 => u64::from(self.u8(what)?) << 32 | u64::from(self.u32(what)?.swap_bytes()),
            8 => self.u64(what)?.swap_bytes(),
            _ => self.take(width, what)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        })
    }

    /// Bytes with their length, a little-endian integer of `width` bytes, before them.
    #[inline]
    pub fn take_prefixed(&mut self, width: usize, what: &'static str) -> Result<&'a [u8]> {
        let length = self.uint_le(width, what)?;
        // A length beyond the address space is beyond the input too.
        self.take(usize::try_from(length).unwrap_or(usize::MAX), what)
    }

    #[inline]
    pub fn take_u8_prefixed(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let length = self.u8(what)?;
        self.take(length.into(), what)
    }

    /// The protocol's length-encoded integer: 0-250 as is, 0xfc/0xfd/0xfe + 2/3/8 bytes.
    #[inline]
    pub fn lenenc(&mut self, what: &'static str) -> Result<u64> {
        let before = *self;
        match self.u8(what)? {
            small @ 0..=250 => Ok(small.into()),
            0xfc => self.uint_le(2, what),
            0xfd => self.uint_le(3, what),
            0xfe => self.u64(what),
            other => Err(before.fail(format!("{what} cannot begin with the byte {other:#04x}"))),
        }
    }

    /// A length-encoded integer that counts bytes or items after it. An error if it is larger than the number
    /// of bytes that were not read, times `per_byte` (8 for bits).
    pub fn lenenc_count(&mut self, per_byte: usize, what: &'static str) -> Result<usize> {
        let before = *self;
        let count = self.lenenc(what)?;
        if count > (self.remaining() as u64).saturating_mul(per_byte as u64) {
            return Err(
                before.fail(format!("{what} says {count}, but only {} bytes follow", self.remaining()))
            );
        }
        Ok(count as usize)
    }

    #[inline]
    pub fn take_lenenc(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let length = self.lenenc(what)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX), what)
    }

    /// Bytes up to a NUL, which is passed over.
    pub fn take_until_nul(&mut self, what: &'static str) -> Result<&'a [u8]> {
        match memchr::memchr(0, self.rest) {
            Some(length) => {
                let taken = self.take(length, what)?;
                self.skip(1, what)?;
                Ok(taken)
            }
            None => Err(self.fail(format!("{what} has no end"))),
        }
    }

    #[cold]
    pub fn fail(&self, reason: impl Into<String>) -> DecodeError {
        DecodeError::new(reason, self.offset())
    }

    #[cold]
    fn short(&self, needed: usize, what: &'static str) -> DecodeError {
        self.fail(format!("{what} needs {needed} bytes, but only {} are left", self.remaining()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_names_the_field_and_its_offset() {
        let mut cursor = Cursor::new(&[1, 2, 3], 100);
        assert_eq!(cursor.u16("head").unwrap(), 0x0201);
        let error = cursor.u32("tail").unwrap_err();
        assert_eq!((error.offset(), error.reason()), (102, "tail needs 4 bytes, but only 1 are left"));
    }

    #[test]
    fn a_length_beyond_the_input_allocates_nothing() {
        let mut cursor = Cursor::new(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 7], 0);
        assert!(cursor.clone().take_lenenc("text").is_err());
        assert!(cursor.lenenc_count(8, "columns").is_err());
    }

    #[test]
    fn integers_of_odd_widths() {
        assert_eq!(Cursor::new(&[1, 2, 3], 0).uint_le(3, "x").unwrap(), 0x030201);
        assert_eq!(Cursor::new(&[1, 2, 3, 4, 5], 0).uint_be(5, "x").unwrap(), 0x0102030405);
    }
}
