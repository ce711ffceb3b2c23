//! Checksums of events: which events end with a CRC32, and whether it is right.
//!
//! A FORMAT_DESCRIPTION says how the events after it end. Whether it says so depends on its server's version:
//! checksums came with MySQL 5.6.1 and MariaDB 5.3.0. The FORMAT_DESCRIPTION of an older server ends with
//! lengths of event types, which must not be taken for a checksum.

use crate::crc32::crc32;
use crate::cursor::Cursor;
use crate::error::Result;

pub const CHECKSUM_SIZE: usize = 4;
/// Size of the server's version in a FORMAT_DESCRIPTION.
const VERSION_SIZE: usize = 50;

/// Whether events end with a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    #[default]
    None,
    Crc32,
}

impl Checksum {
    /// What a FORMAT_DESCRIPTION announces for the events after it. `body` is everything after its header,
    /// and begins at offset `base`. None: the server is older than checksums, so the event itself has none
    /// either.
    pub fn announced_by(body: &[u8], base: u64) -> Result<Option<Self>> {
        let mut cursor = Cursor::new(body, base);
        cursor.skip(2, "binlog version")?;
        let version = cursor.take(VERSION_SIZE, "server version")?;
        cursor.skip(4 + 1, "creation time and header size")?;
        if !knows_checksums(until_zero(version)) {
            return Ok(None);
        }
        // At the end: the algorithm, and the event's own CRC32, which is there whatever the algorithm is.
        match cursor.rest().split_last_chunk::<{ CHECKSUM_SIZE + 1 }>() {
            Some((_, [0, ..])) => Ok(Some(Self::None)),
            Some((_, [1, ..])) => Ok(Some(Self::Crc32)),
            Some((_, [other, ..])) => {
                Err(cursor.fail(format!("checksum algorithm {other} is not supported")))
            }
            None => Err(cursor.fail("format description without checksum algorithm")),
        }
    }

    #[inline]
    pub fn size(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32 => CHECKSUM_SIZE,
        }
    }

    /// Whether the CRC32 at the end of a whole event is right; true where there is none.
    pub fn verify(self, event: &[u8]) -> bool {
        match (self, event.split_last_chunk::<CHECKSUM_SIZE>()) {
            (Self::None, _) => true,
            (Self::Crc32, Some((covered, sum))) => crc32(covered) == u32::from_le_bytes(*sum),
            (Self::Crc32, None) => false,
        }
    }

    /// Appends the CRC32 of an event that ends here; nothing where there are no checksums.
    pub fn append(self, event: &mut Vec<u8>) {
        if self == Self::Crc32 {
            let sum = crc32(event);
            event.extend_from_slice(&sum.to_le_bytes());
        }
    }
}

/// The text in a field of fixed size, which zero bytes fill up.
pub fn until_zero(field: &[u8]) -> &[u8] {
    &field[..memchr::memchr(0, field).unwrap_or(field.len())]
}

/// MySQL 5.6.1 and MariaDB 5.3.0 were the first servers with checksums.
fn knows_checksums(server_version: &[u8]) -> bool {
    let mut numbers = server_version.split(|byte| matches!(byte, b'.' | b'-')).map(leading_number);
    let version = [0; 3].map(|_: u32| numbers.next().unwrap_or(0));
    let is_mariadb = memchr::memmem::find(server_version, b"MariaDB").is_some();
    version >= if is_mariadb { [5, 3, 0] } else { [5, 6, 1] }
}

fn leading_number(part: &[u8]) -> u32 {
    let digits = part.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u32, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of a FORMAT_DESCRIPTION by this server, with these last five bytes.
    fn format_description(version: &str, end: [u8; 5]) -> Vec<u8> {
        let mut body = vec![4, 0];
        body.extend(version.as_bytes());
        body.resize(2 + VERSION_SIZE + 4, 0);
        body.push(19);
        body.extend([8; 27]);
        body.extend(end);
        body
    }

    #[test]
    fn checksums_are_known_from_mysql_5_6_1_and_mariadb_5_3_0() {
        for (version, known) in [
            ("5.1.73-log", false),
            ("5.5.62-log", false),
            ("5.6.0", false),
            ("5.6.1-m5", true),
            ("8.0.15", true),
            ("5.2.14-MariaDB", false),
            ("5.3.0-MariaDB-beta", true),
            ("5.3.12-MariaDB", true),
            ("5.5.68-MariaDB-log", true),
            ("10.6.18-MariaDB-log", true),
        ] {
            let announced =
                Checksum::announced_by(&format_description(version, [1, 0, 0, 0, 0]), 23).unwrap();
            assert_eq!(announced, known.then_some(Checksum::Crc32), "{version}");
        }
    }

    #[test]
    fn the_byte_before_the_checksum_of_a_format_description_names_the_algorithm() {
        let of =
            |algorithm| Checksum::announced_by(&format_description("8.0.15", [algorithm, 9, 9, 9, 9]), 23);
        assert_eq!(of(0).unwrap(), Some(Checksum::None));
        assert_eq!(of(1).unwrap(), Some(Checksum::Crc32));
        assert!(of(2).unwrap_err().reason().contains("checksum algorithm 2"));
    }

    #[test]
    fn a_format_description_that_is_cut_off_is_an_error() {
        let body = format_description("8.0.15", [1, 0, 0, 0, 0]);
        for length in 0..2 + VERSION_SIZE + 4 + 1 + CHECKSUM_SIZE + 1 {
            assert!(Checksum::announced_by(&body[..length], 23).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn an_appended_checksum_is_right() {
        let mut event = b"an event".to_vec();
        Checksum::None.append(&mut event);
        assert_eq!(event, b"an event");
        Checksum::Crc32.append(&mut event);
        assert!(event.len() == 12 && Checksum::Crc32.verify(&event));
        event[0] ^= 1;
        assert!(!Checksum::Crc32.verify(&event) && Checksum::None.verify(&event));
    }
}
