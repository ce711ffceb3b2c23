//! MariaDB's INET4, INET6 and UUID: fixed bytes in the log, text in SELECT. UUIDs of other sources, too.

use std::io::Write;

use crate::error::ValueError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Inet4,
    Inet6,
    Uuid,
}

impl Network {
    pub fn size(self) -> usize {
        match self {
            Self::Inet4 => 4,
            Self::Inet6 | Self::Uuid => 16,
        }
    }

    /// As SELECT prints it. Zero bytes at the end may be missing.
    pub fn write_text(self, value: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
        if let (Self::Uuid, Some((&AS_IT_IS, plain))) = (self, value.split_last()) {
            if let Ok(plain) = plain.try_into() {
                write_uuid(plain, out);
                return Ok(());
            }
        }
        if value.len() > self.size() {
            return Err(ValueError::new(format!("{} bytes; {} are possible", value.len(), self.size())));
        }
        let mut bytes = [0; 16];
        bytes[..value.len()].copy_from_slice(value);
        match self {
            Self::Inet4 => write_inet4(&bytes[..4], out),
            Self::Inet6 => write_inet6(&bytes, out),
            Self::Uuid => write_uuid(&plain_uuid(bytes), out),
        }
        Ok(())
    }

    /// Appends the bytes of a UUID in a row image: those that MariaDB stores. Other databases have UUIDs that
    /// MariaDB would print as another one. They are followed by a byte more.
    pub fn append_uuid(plain: [u8; 16], out: &mut Vec<u8>) {
        let mut stored = plain;
        // The version and the variant, where they are in the text.
        if (0x01..0x60).contains(&plain[6]) && plain[8] & 0x80 != 0 {
            stored[..6].copy_from_slice(&plain[10..]);
            stored[6..8].copy_from_slice(&plain[8..10]);
            stored[8..10].copy_from_slice(&plain[6..8]);
            stored[10..12].copy_from_slice(&plain[4..6]);
            stored[12..].copy_from_slice(&plain[..4]);
        }
        out.extend_from_slice(&stored);
        if plain_uuid(stored) != plain {
            out.push(AS_IT_IS);
        }
    }
}

/// The byte behind a UUID that MariaDB could not store.
const AS_IT_IS: u8 = 1;

fn write_inet4(bytes: &[u8], out: &mut Vec<u8>) {
    for (index, byte) in bytes.iter().enumerate() {
        // Writing into a Vec cannot fail.
        let _ = write!(out, "{}{byte}", if index > 0 { "." } else { "" });
    }
}

/// Groups in hexadecimal. The longest run of zero groups, even a single one, is written as `::` (the first
/// one of several equal runs). Addresses of the forms `::a.b.c.d` and `::ffff:a.b.c.d` end in the notation of
/// INET4.
fn write_inet6(bytes: &[u8; 16], out: &mut Vec<u8>) {
    let mut groups = [0_u16; 8];
    for (group, pair) in groups.iter_mut().zip(bytes.chunks(2)) {
        *group = u16::from_be_bytes([pair[0], pair[1]]);
    }
    let (mut gap, mut index) = (8..8, 0);
    while index < 8 {
        let length = groups[index..].iter().take_while(|group| **group == 0).count();
        if length > gap.len() {
            gap = index..index + length;
        }
        index += length.max(1);
    }
    let dotted = gap == (0..6) || gap == (0..5) && groups[5] == 0xffff;
    let mut index = 0;
    while index < 8 {
        if index == gap.start {
            out.extend_from_slice(if index == 0 { b"::" } else { b":" });
            index = gap.end;
            continue;
        }
        if index == 6 && dotted {
            return write_inet4(&bytes[12..], out);
        }
        let _ = write!(out, "{:x}{}", groups[index], if index < 7 { ":" } else { "" });
        index += 1;
    }
}

/// The log has the bytes as MariaDB stores them. UUIDs of versions 1 to 5 are stored with their five parts in
/// reverse order, so that they sort by time.
fn plain_uuid(bytes: [u8; 16]) -> [u8; 16] {
    let reversed = bytes[6] & 0x80 != 0 && (0x01..0x60).contains(&bytes[8]);
    let mut plain = bytes;
    if reversed {
        plain[..4].copy_from_slice(&bytes[12..]);
        plain[4..6].copy_from_slice(&bytes[10..12]);
        plain[6..8].copy_from_slice(&bytes[8..10]);
        plain[8..10].copy_from_slice(&bytes[6..8]);
        plain[10..].copy_from_slice(&bytes[..6]);
    }
    plain
}

pub fn write_uuid(plain: &[u8; 16], out: &mut Vec<u8>) {
    for (index, byte) in plain.iter().enumerate() {
        let _ = write!(out, "{}{byte:02x}", if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(stored: &[u8]) -> String {
        let mut out = Vec::new();
        Network::Uuid.write_text(stored, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn with(mut plain: [u8; 16], version: u8, variant: u8) -> [u8; 16] {
        (plain[6], plain[8]) = (version | plain[6] & 15, variant);
        plain
    }

    proptest! {
        #[test]
        fn every_uuid_is_printed_as_it_is(plain: [u8; 16], version in 0..=15u8, variant: u8) {
            for plain in [plain, with(plain, version << 4, variant)] {
                let (mut image, mut printed) = (Vec::new(), Vec::new());
                Network::append_uuid(plain, &mut image);
                write_uuid(&plain, &mut printed);
                prop_assert_eq!(text_of(&image).into_bytes(), printed);
            }
        }

        #[test]
        fn a_uuid_that_mariadb_prints_is_printed_again(stored: [u8; 16]) {
            let mut image = Vec::new();
            Network::append_uuid(plain_uuid(stored), &mut image);
            prop_assert_eq!(text_of(&image), text_of(&stored));
        }
    }
}
