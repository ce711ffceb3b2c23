//! Text of every character set of MySQL 8.0 to UTF-8.
//!
//! Nothing is lost silently: bytes that mean nothing in their character set are written as `\xNN` (two
//! upper-case hexadecimal digits each), never as a replacement character.

mod differences;
pub mod tables;

use encoding_rs::{DecoderResult, Encoding};

/// How the bytes of a character column are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// No characters at all.
    Binary,
    /// utf8mb4 and utf8mb3.
    Utf8,
    /// A character set of one byte, by its index in `tables::SINGLE_BYTE`.
    SingleByte(u8),
    EastAsian(EastAsian),
    /// ucs2 and utf16.
    Utf16 {
        little_endian: bool,
    },
    Utf32,
}

/// ASCII, and codes of two or more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EastAsian {
    Big5,
    Cp932,
    Eucjpms,
    Euckr,
    Gb18030,
    Gb2312,
    Gbk,
    Sjis,
    Ujis,
}

impl EastAsian {
    fn encoding(self) -> &'static Encoding {
        match self {
            Self::Big5 => encoding_rs::BIG5,
            Self::Cp932 | Self::Sjis => encoding_rs::SHIFT_JIS,
            Self::Eucjpms | Self::Ujis => encoding_rs::EUC_JP,
            Self::Euckr => encoding_rs::EUC_KR,
            Self::Gb18030 => encoding_rs::GB18030,
            Self::Gb2312 | Self::Gbk => encoding_rs::GBK,
        }
    }
}

impl EastAsian {
    /// Codes that the server reads otherwise than encoding_rs, by code.
    fn differences(self) -> &'static [(u32, u32)] {
        match self {
            Self::Big5 => &differences::BIG5,
            Self::Eucjpms => &differences::EUCJPMS,
            Self::Gb18030 => &differences::GB18030,
            Self::Gb2312 => &differences::GB2312,
            Self::Sjis => &differences::SJIS,
            Self::Ujis => &differences::UJIS,
            Self::Cp932 | Self::Euckr | Self::Gbk => &[],
        }
    }
}

impl Charset {
    /// The character set with this name at the server.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "binary" => Self::Binary,
            "utf8mb4" | "utf8mb3" | "utf8" => Self::Utf8,
            "ucs2" | "utf16" => Self::Utf16 { little_endian: false },
            "utf16le" => Self::Utf16 { little_endian: true },
            "utf32" => Self::Utf32,
            "big5" => Self::EastAsian(EastAsian::Big5),
            "cp932" => Self::EastAsian(EastAsian::Cp932),
            "eucjpms" => Self::EastAsian(EastAsian::Eucjpms),
            "euckr" => Self::EastAsian(EastAsian::Euckr),
            "gb18030" => Self::EastAsian(EastAsian::Gb18030),
            "gb2312" => Self::EastAsian(EastAsian::Gb2312),
            "gbk" => Self::EastAsian(EastAsian::Gbk),
            "sjis" => Self::EastAsian(EastAsian::Sjis),
            "ujis" => Self::EastAsian(EastAsian::Ujis),
            _ => {
                let index = tables::SINGLE_BYTE.iter().position(|(candidate, _)| *candidate == name)?;
                Self::SingleByte(index as u8)
            }
        })
    }

    /// The character set of a collation, by the id that table maps, QUERY events and column definitions have.
    pub fn from_collation(id: u16) -> Option<Self> {
        collation_charset(id).and_then(Self::from_name)
    }

    /// Appends the text as UTF-8.
    #[inline]
    pub fn append(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Binary | Self::Utf8 => append_utf8(bytes, out),
            Self::SingleByte(index) => {
                append_single_byte(&tables::SINGLE_BYTE[usize::from(index)].1, bytes, out)
            }
            Self::EastAsian(charset) => append_east_asian(charset, bytes, out),
            Self::Utf16 { little_endian } => append_utf16(bytes, little_endian, out),
            Self::Utf32 => append_utf32(bytes, out),
        }
    }
}

/// Name of a collation's character set. Ids that came after the server of the tables: 8.0.17+ utf8mb4
/// languages, and MariaDB's UCA 14 families.
pub fn collation_charset(id: u16) -> Option<&'static str> {
    match tables::COLLATIONS.binary_search_by_key(&id, |(candidate, _)| *candidate) {
        Ok(index) => Some(tables::COLLATIONS[index].1),
        Err(_) => match id {
            76 => Some("utf8mb3"),
            256..=350 | 2304..=2559 => Some("utf8mb4"),
            576..=607 | 2048..=2303 => Some("utf8mb3"),
            608..=639 => Some("utf8mb4"),
            640..=671 | 2560..=2815 => Some("ucs2"),
            672..=703 | 2816..=3071 => Some("utf16"),
            736..=767 | 3072..=3327 => Some("utf32"),
            _ => None,
        },
    }
}

/// The encoding that comes nearest to a character set of two or more bytes; for the generator of
/// `differences`.
pub fn encoding_of(name: &str) -> Option<&'static Encoding> {
    match Charset::from_name(name) {
        Some(Charset::EastAsian(charset)) => Some(charset.encoding()),
        _ => None,
    }
}

pub(crate) fn append_escape(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn append_escapes(bytes: &[u8], out: &mut Vec<u8>) {
    bytes.iter().for_each(|byte| append_escape(*byte, out));
}

fn append_char(scalar: char, out: &mut Vec<u8>) {
    out.extend(scalar.encode_utf8(&mut [0; 4]).as_bytes());
}

/// UTF-8 with each byte that is not part of a character escaped.
pub fn append_utf8(bytes: &[u8], out: &mut Vec<u8>) {
    if simdutf8::basic::from_utf8(bytes).is_ok() {
        return out.extend_from_slice(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        append_escapes(chunk.invalid(), out);
    }
}

fn append_single_byte(table: &[u16; 256], bytes: &[u8], out: &mut Vec<u8>) {
    // All of these but swe7 have ASCII below 0x80.
    if bytes.is_ascii() && table[usize::from(b'[')] == u16::from(b'[') {
        return out.extend_from_slice(bytes);
    }
    for byte in bytes {
        match table[usize::from(*byte)] {
            0xFFFF => append_escape(*byte, out),
            scalar => append_char(char::from_u32(scalar.into()).unwrap_or('?'), out),
        }
    }
}

fn append_east_asian(charset: EastAsian, bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.is_ascii() {
        return out.extend_from_slice(bytes);
    }
    let differences = charset.differences();
    let (mut plain, mut at) = (0, 0);
    while at < bytes.len() && !differences.is_empty() {
        let length = code_length(charset, &bytes[at..]).min(bytes.len() - at);
        let code = bytes[at..at + length].iter().fold(0_u32, |code, byte| code << 8 | u32::from(*byte));
        let found = length > 1 && code >= differences[0].0;
        if let Some(index) =
            found.then(|| differences.binary_search_by_key(&code, |pair| pair.0).ok()).flatten()
        {
            append_decoded(charset.encoding(), &bytes[plain..at], out);
            append_char(char::from_u32(differences[index].1).unwrap_or('?'), out);
            plain = at + length;
        }
        at += length;
    }
    append_decoded(charset.encoding(), &bytes[plain..], out);
}

fn append_decoded(encoding: &'static Encoding, mut bytes: &[u8], out: &mut Vec<u8>) {
    while !bytes.is_empty() {
        let mut decoder = encoding.new_decoder_without_bom_handling();
        let start = out.len();
        let room = decoder.max_utf8_buffer_length_without_replacement(bytes.len()).unwrap_or(0);
        out.resize(start + room, 0);
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(bytes, &mut out[start..], true);
        out.truncate(start + written);
        let DecoderResult::Malformed(length, looked_ahead) = result else { return };
        let end = read - usize::from(looked_ahead);
        append_escapes(&bytes[end - usize::from(length)..end], out);
        bytes = &bytes[end..];
    }
}

/// Bytes of the code that begins here, by its lead byte.
fn code_length(charset: EastAsian, bytes: &[u8]) -> usize {
    match (charset, bytes[0]) {
        (_, 0..=0x7f) => 1,
        (EastAsian::Cp932 | EastAsian::Sjis, 0xa0..=0xdf) => 1,
        (EastAsian::Eucjpms | EastAsian::Ujis, 0x8f) => 3,
        (EastAsian::Gb18030, _) if matches!(bytes.get(1), Some(b'0'..=b'9')) => 4,
        (_, 0x80 | 0xff) => 1,
        _ => 2,
    }
}

fn append_utf16(bytes: &[u8], little_endian: bool, out: &mut Vec<u8>) {
    let pairs = bytes.chunks_exact(2);
    let odd = pairs.remainder();
    let unit = |pair: &[u8]| {
        let pair = [pair[0], pair[1]];
        if little_endian {
            u16::from_le_bytes(pair)
        } else {
            u16::from_be_bytes(pair)
        }
    };
    for scalar in char::decode_utf16(pairs.map(unit)) {
        match scalar {
            Ok(scalar) => append_char(scalar, out),
            Err(lone) => {
                let unit = lone.unpaired_surrogate();
                append_escapes(&if little_endian { unit.to_le_bytes() } else { unit.to_be_bytes() }, out);
            }
        }
    }
    append_escapes(odd, out);
}

fn append_utf32(bytes: &[u8], out: &mut Vec<u8>) {
    let quads = bytes.chunks_exact(4);
    let odd = quads.remainder();
    for quad in quads {
        match char::from_u32(u32::from_be_bytes([quad[0], quad[1], quad[2], quad[3]])) {
            Some(scalar) => append_char(scalar, out),
            None => append_escapes(quad, out),
        }
    }
    append_escapes(odd, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(charset: &str, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        Charset::from_name(charset).unwrap().append(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bytes_that_mean_nothing_are_escaped() {
        assert_eq!(text("utf8mb4", b"a\xff\xe2\x82b"), "a\\xFF\\xE2\\x82b");
        assert_eq!(text("ascii", b"a\x80"), "a\\x80");
        assert_eq!(text("utf16", b"\xd8\x00\x00a"), "\\xD8\\x00a");
        assert_eq!(text("utf32", b"\x00\x00\x00a\x7f"), "a\\x7F");
        assert_eq!(text("gbk", b"a\x81"), "a\\x81");
    }

    #[test]
    fn characters_beyond_ascii() {
        assert_eq!(text("latin1", b"\x80\xe9"), "€é");
        assert_eq!(text("cp1251", b"\xef"), "п");
        assert_eq!(text("swe7", b"["), "Ä");
        assert_eq!(text("utf16le", b"\x3d\xd8\x00\xde"), "😀");
        assert_eq!(text("sjis", b"\x83\x65"), "テ");
    }

    #[test]
    fn every_collation_of_the_server_has_a_charset_we_know() {
        for (id, name) in tables::COLLATIONS {
            assert!(Charset::from_name(name).is_some(), "{id} {name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_valid_utf8(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            id in 1_u16..330,
        ) {
            if let Some(charset) = Charset::from_collation(id) {
                let mut out = Vec::new();
                charset.append(&bytes, &mut out);
                prop_assert!(std::str::from_utf8(&out).is_ok());
            }
        }
    }
}
