//! Values of MariaDB's `COMPRESSED` columns.
//!
//! The first byte has the algorithm (4 bits: 0 none, 8 zlib), whether the stream lacks zlib's own frame (1
//! bit), and the size of the length field (3 bits). A compressed value continues with the length of the
//! value, big-endian, and the stream. Another one continues with the value itself. An empty value has no
//! bytes at all.

use std::borrow::Cow;
use std::io::Read;

use flate2::bufread::{DeflateDecoder, ZlibDecoder};

use crate::cursor::Cursor;
use crate::error::ValueError;

/// Most bytes of a packet, and so of a value.
const UNPACKED_MAX: u64 = 1 << 30;

pub fn unpack(packed: &[u8]) -> Result<Cow<'_, [u8]>, ValueError> {
    let Some((head, rest)) = packed.split_first() else { return Ok(Cow::Borrowed(&[])) };
    let mut cursor = Cursor::new(rest, 1);
    match head >> 4 {
        0 => return Ok(Cow::Borrowed(rest)),
        8 => {}
        other => return Err(ValueError::new(format!("compression algorithm {other} is not known"))),
    }
    let length = cursor.uint_be((head & 7).into(), "unpacked length");
    let length = length.ok().filter(|length| *length <= UNPACKED_MAX);
    let length = length.ok_or_else(|| ValueError::new("a compressed value of impossible length"))?;
    let mut value = Vec::new();
    let stream = cursor.rest();
    let used = match head & 8 {
        0 => {
            let mut decoder = ZlibDecoder::new(stream);
            decoder.by_ref().take(length + 1).read_to_end(&mut value).map(|_| decoder.total_in())
        }
        _ => {
            let mut decoder = DeflateDecoder::new(stream);
            decoder.by_ref().take(length + 1).read_to_end(&mut value).map(|_| decoder.total_in())
        }
    };
    let whole = used.is_ok_and(|used| used == stream.len() as u64);
    if !whole || value.len() as u64 != length {
        return Err(ValueError::new("a compressed value that cannot be unpacked"));
    }
    Ok(Cow::Owned(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_not_worth_packing_stands_as_it_is() {
        assert_eq!(unpack(b"").unwrap(), b"".as_slice());
        assert_eq!(unpack(b"\x00abc").unwrap(), b"abc".as_slice());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = unpack(&bytes);
        }
    }
}
