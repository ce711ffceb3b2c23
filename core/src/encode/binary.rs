//! The bytes of Avro and Protobuf.

/// How a format writes values. Both write fixed numbers as they are in memory of a small machine, and strings
/// with their length before them.
pub trait Target: Send + Sync + Default + 'static {
    const NAME: &'static str;
    const PROTOBUF: bool;

    fn integer(value: i64, out: &mut Vec<u8>);

    #[inline(always)]
    fn length(value: usize, out: &mut Vec<u8>) {
        Self::integer(value as i64, out);
    }

    /// The largest length that has one byte.
    const SHORT: usize;
}

#[derive(Default)]
pub struct Avro;

#[derive(Default)]
pub struct Protobuf;

/// Seven bits a byte, the lowest first.
#[inline(always)]
pub fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let (mut bytes, mut count) = ([0_u8; 10], 0);
    while value >= 0x80 {
        bytes[count] = value as u8 | 0x80;
        value >>= 7;
        count += 1;
    }
    bytes[count] = value as u8;
    out.extend_from_slice(&bytes[..=count]);
}

/// How many bytes `write_varint` appends.
#[inline(always)]
pub fn varint_length(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

impl Target for Avro {
    const NAME: &'static str = "AVRO";
    const PROTOBUF: bool = false;
    const SHORT: usize = 63;

    #[inline(always)]
    fn integer(value: i64, out: &mut Vec<u8>) {
        write_varint((value << 1 ^ value >> 63) as u64, out);
    }
}

impl Target for Protobuf {
    const NAME: &'static str = "PROTOBUF";
    const PROTOBUF: bool = true;
    const SHORT: usize = 127;

    #[inline(always)]
    fn integer(value: i64, out: &mut Vec<u8>) {
        write_varint(value as u64, out);
    }
}

#[inline(always)]
pub fn write_bytes<T: Target>(bytes: &[u8], out: &mut Vec<u8>) {
    T::length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Writes what `write` appends with its length before it.
#[inline(always)]
pub fn prefixed<T: Target, E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.push(0);
    write(out)?;
    let length = out.len() - start - 1;
    if length <= T::SHORT {
        out[start] = if T::PROTOBUF { length as u8 } else { (length << 1) as u8 };
    } else {
        make_room::<T>(start, length, out);
    }
    Ok(())
}

#[inline(never)]
fn make_room<T: Target>(start: usize, length: usize, out: &mut Vec<u8>) {
    let end = out.len();
    T::length(length, out);
    let more = out.len() - end - 1;
    let mut prefix = [0_u8; 10];
    prefix[..=more].copy_from_slice(&out[end..]);
    out.truncate(end);
    out.resize(end + more, 0);
    out.copy_within(start + 1..end, start + 1 + more);
    out[start..=start + more].copy_from_slice(&prefix[..=more]);
}

/// Kinds of values on the wire of Protobuf.
pub const VARINT: u8 = 0;
pub const FIXED_64: u8 = 1;
pub const LENGTH: u8 = 2;
pub const FIXED_32: u8 = 5;

#[inline(always)]
pub fn write_tag(field: usize, kind: u8, out: &mut Vec<u8>) {
    write_varint((field as u64) << 3 | u64::from(kind), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bytes_of_the_specifications() {
        for (value, avro, protobuf) in [
            (0_i64, &[0_u8][..], &[0_u8][..]),
            (-1, &[1], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            (64, &[0x80, 1], &[64]),
            (150, &[0xac, 2], &[0x96, 1]),
        ] {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            Avro::integer(value, &mut one);
            Protobuf::integer(value, &mut other);
            assert_eq!((one.as_slice(), other.as_slice()), (avro, protobuf));
        }
    }

    #[test]
    fn lengths_are_put_before_what_was_written() {
        for length in [0, 1, 63, 64, 127, 128, 8191, 8192, 20_000] {
            let (mut inside, mut before) = (b"x".to_vec(), b"x".to_vec());
            let bytes = vec![7; length];
            prefixed::<Avro, ()>(&mut inside, |out| {
                out.extend_from_slice(&bytes);
                Ok(())
            })
            .unwrap();
            write_bytes::<Avro>(&bytes, &mut before);
            assert_eq!(inside, before);
        }
    }
}
