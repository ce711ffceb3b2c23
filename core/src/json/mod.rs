//! MySQL's binary JSON to text, byte for byte as the server prints it.
//!
//! A document is a type byte and a value. Objects and arrays begin with their count and size, then entries of
//! fixed size (for objects first those of the keys), then what did not fit into the entries; offsets count
//! from the container's first byte; "small" ones are 2 bytes wide, "large" ones 4. (json_binary.h of the
//! server describes the format; this is written from that description.)

mod change;

use std::io::Write;

use crate::cursor::Cursor;
use crate::decimal::DecimalImage;
use crate::double::write_double;
use crate::error::{DecodeError, ValueError};
use crate::event::FormatDescription;
use crate::temporal::{Date, DateTime, Time};
use crate::wire::code;

pub use self::change::write_changed;

type Result<T> = std::result::Result<T, ValueError>;

/// The server refuses deeper documents.
const DEPTH_MAX: usize = 101;

impl From<DecodeError> for ValueError {
    fn from(error: DecodeError) -> Self {
        Self::new(format!("malformed JSON document: {} (byte {})", error.reason(), error.offset()))
    }
}

/// What differs between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// MySQL 5.7 prints a double without fraction like an integer, later ones with `.0`.
    pub bare_doubles: bool,
}

impl Style {
    pub fn of(format: &FormatDescription) -> Self {
        Self { bare_doubles: format.server_version.starts_with("5.") }
    }
}

/// Appends the document as text, as MySQL 8.0 and later print it. An empty document is the literal null: so
/// the server reads it. The text is UTF-8 as far as the document's strings are; a server only writes such.
pub fn write_text(document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    write_text_as(Style::default(), document, out)
}

/// The same as a certain server prints it.
pub fn write_text_as(style: Style, document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let Some((kind, data)) = document.split_first() else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    let mut writer = Writer { out, style, work: document.len() };
    writer.value(*kind, data, 0)
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    style: Style,
    /// Bytes of the document not yet read. Values never overlap in what a server writes; if they do, the
    /// document is made to explode and the work is refused.
    work: usize,
}

impl Writer<'_> {
    fn value(&mut self, kind: u8, data: &[u8], depth: usize) -> Result<()> {
        let mut cursor = Cursor::new(data, 0);
        match kind {
            0x00 => self.container::<2>(data, true, depth)?,
            0x01 => self.container::<4>(data, true, depth)?,
            0x02 => self.container::<2>(data, false, depth)?,
            0x03 => self.container::<4>(data, false, depth)?,
            0x04 => self.literal(cursor.u8("literal")?)?,
            0x05 => self.signed(i64::from(cursor.u16("int16")? as i16)),
            0x06 => self.unsigned(cursor.u16("uint16")?.into()),
            0x07 => self.signed(i64::from(cursor.u32("int32")? as i32)),
            0x08 => self.unsigned(cursor.u32("uint32")?.into()),
            0x09 => self.signed(cursor.i64("int64")?),
            0x0a => self.unsigned(cursor.u64("uint64")?),
            0x0b => self.double(cursor.f64("double")?),
            0x0c => {
                let text = take_sized(&mut cursor)?;
                self.spend(text.len())?;
                self.string(text);
            }
            0x0f => {
                let field_type = cursor.u8("opaque type")?;
                let data = take_sized(&mut cursor)?;
                self.spend(data.len())?;
                self.opaque(field_type, data)?;
            }
            other => return Err(malformed(format!("type {other:#04x}"))),
        }
        Ok(())
    }

    /// `WIDTH`: bytes of offsets, 2 in small containers and 4 in large ones.
    fn container<const WIDTH: usize>(&mut self, data: &[u8], object: bool, depth: usize) -> Result<()> {
        if depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        let mut elements = Elements::<WIDTH>::open(data, object)?;
        self.spend(elements.table_size)?;
        self.out.push(if object { b'{' } else { b'[' });
        for index in 0..elements.count {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            if object {
                let key = elements.next_key()?;
                self.spend(key.len())?;
                self.string(key);
                self.out.extend_from_slice(b": ");
            }
            let (kind, data) = elements.next_value()?;
            self.value(kind, data, depth + 1)?;
        }
        self.out.push(if object { b'}' } else { b']' });
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        self.work = self.work.checked_sub(bytes).ok_or_else(|| malformed("values that overlap"))?;
        Ok(())
    }

    fn literal(&mut self, literal: u8) -> Result<()> {
        self.out.extend_from_slice(match literal {
            0 => b"null",
            1 => b"true",
            2 => b"false",
            other => return Err(malformed(format!("literal {other}"))),
        });
        Ok(())
    }

    fn signed(&mut self, value: i64) {
        if value < 0 {
            self.out.push(b'-');
        }
        self.unsigned(value.unsigned_abs());
    }

    fn unsigned(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[start..]);
    }

    /// With `.0` where nothing else tells it from an integer, on servers that do so.
    fn double(&mut self, value: f64) {
        let start = self.out.len();
        write_double(value, self.out);
        if !self.style.bare_doubles && !self.out[start..].iter().any(|byte| matches!(byte, b'.' | b'e')) {
            self.out.extend_from_slice(b".0");
        }
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        // Without early exit, so that it is done many bytes at once.
        let plain = text.iter().fold(true, |plain, byte| plain & !needs_escape(*byte));
        if plain {
            self.out.extend_from_slice(text);
        } else {
            text.iter().for_each(|byte| self.escaped(*byte));
        }
        self.out.push(b'"');
    }

    fn escaped(&mut self, byte: u8) {
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            0..=0x1f => {
                let _ = write!(self.out, "\\u{byte:04x}");
                return;
            }
            _ => return self.out.push(byte),
        };
        self.out.extend([b'\\', short]);
    }

    /// SQL values that JSON has no type for, by the column type they came from.
    fn opaque(&mut self, field_type: u8, data: &[u8]) -> Result<()> {
        match field_type {
            code::NEWDECIMAL => {
                let [precision, scale, image @ ..] = data else { return Err(malformed("a short decimal")) };
                return DecimalImage::new(image, *precision, *scale)?.write_text(self.out);
            }
            code::DATE | code::NEWDATE | code::DATETIME | code::TIMESTAMP | code::TIME => {
                let packed = Cursor::new(data, 0).i64("temporal value")?;
                self.out.push(b'"');
                match field_type {
                    code::TIME => unpack_time(packed).write_text(6, self.out),
                    code::DATE | code::NEWDATE => unpack_datetime(packed).date.write_text(self.out),
                    _ => unpack_datetime(packed).write_text(6, self.out),
                }
                self.out.push(b'"');
            }
            other => {
                let _ = write!(self.out, "\"base64:type{other}:");
                write_base64(data, self.out);
                self.out.push(b'"');
            }
        }
        Ok(())
    }
}

/// The entries of an object or array, one by one.
struct Elements<'a, const WIDTH: usize> {
    /// The whole container, no more.
    data: &'a [u8],
    count: usize,
    /// Bytes of all entries.
    table_size: usize,
    keys: Cursor<'a>,
    values: Cursor<'a>,
}

impl<'a, const WIDTH: usize> Elements<'a, WIDTH> {
    #[inline]
    fn open(data: &'a [u8], object: bool) -> Result<Self> {
        let mut head = Cursor::new(data, 0);
        let count = head.uint_le(WIDTH, "element count")? as usize;
        let size = head.uint_le(WIDTH, "container size")? as usize;
        let data = data.get(..size).ok_or_else(|| malformed("a container larger than its document"))?;
        let (key_entry, value_entry) = (WIDTH + 2, WIDTH + 1);
        let entry = value_entry + if object { key_entry } else { 0 };
        let Some(table) = data.get(2 * WIDTH..).filter(|table| count.saturating_mul(entry) <= table.len())
        else {
            return Err(malformed("more elements than bytes"));
        };
        let keys = Cursor::new(table, 2 * WIDTH as u64);
        let mut values = keys;
        if object {
            values.skip(count * key_entry, "keys")?;
        }
        Ok(Self { data, count, table_size: count * entry, keys, values })
    }

    #[inline]
    fn next_key(&mut self) -> Result<&'a [u8]> {
        let offset = self.keys.uint_le(WIDTH, "key offset")? as usize;
        let length = usize::from(self.keys.u16("key length")?);
        let key = self.data.get(offset..).and_then(|rest| rest.get(..length));
        key.ok_or_else(|| malformed("a key outside its object"))
    }

    /// Literals and small integers stand in the entry itself; of others, the entry has the offset.
    #[inline]
    fn next_value(&mut self) -> Result<(u8, &'a [u8])> {
        let kind = self.values.u8("value type")?;
        let slot = self.values.take(WIDTH, "value entry")?;
        if matches!(kind, 0x04..=0x06) || (WIDTH == 4 && matches!(kind, 0x07 | 0x08)) {
            return Ok((kind, slot));
        }
        let offset = Cursor::new(slot, 0).uint_le(WIDTH, "value offset")? as usize;
        let data = self.data.get(offset..).ok_or_else(|| malformed("a value outside its container"))?;
        Ok((kind, data))
    }
}

#[inline]
fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// A length of 7 bits a byte, lowest first, the top bit saying that more follow; then as many bytes.
fn take_sized<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
    let mut length = 0_usize;
    for shift in [0, 7, 14, 21, 28] {
        let byte = cursor.u8("length")?;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(cursor.take(length, "string")?);
        }
    }
    Err(malformed("a length of more than 5 bytes"))
}

/// 24 bits of fraction below: year * 13 + month (17), day (5), hour (5), minute (6), second (6).
fn unpack_datetime(packed: i64) -> DateTime {
    let packed = packed.unsigned_abs();
    let bits = packed >> 24;
    let months = (bits >> 22) as u32 & 0x3_ffff;
    DateTime {
        date: Date { year: (months / 13) as u16, month: (months % 13) as u8, day: (bits >> 17 & 31) as u8 },
        hour: (bits >> 12 & 31) as u8,
        minute: (bits >> 6 & 63) as u8,
        second: (bits & 63) as u8,
        micros: (packed & 0xff_ffff) as u32,
    }
}

fn unpack_time(packed: i64) -> Time {
    let magnitude = packed.unsigned_abs();
    let bits = magnitude >> 24;
    Time {
        negative: packed < 0,
        hours: (bits >> 12 & 0x3ff) as u32,
        minutes: (bits >> 6 & 63) as u8,
        seconds: (bits & 63) as u8,
        micros: (magnitude & 0xff_ffff) as u32,
    }
}

/// With a line break, which JSON escapes, after every 76 characters.
fn write_base64(data: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (index, chunk) in data.chunks(3).enumerate() {
        if index > 0 && index % 19 == 0 {
            out.extend_from_slice(b"\\n");
        }
        let mut wide = [0; 4];
        wide[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(wide);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { digit } else { b'=' });
        }
    }
}

#[cold]
fn too_deep() -> ValueError {
    malformed("deeper than 100 levels")
}

#[cold]
fn malformed(reason: impl AsRef<str>) -> ValueError {
    ValueError::new(format!("malformed JSON document: {}", reason.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(document: &[u8]) -> Result<String> {
        let mut out = Vec::new();
        write_text(document, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_small_object_as_the_server_prints_it() {
        // {"a": 1, "b": [true, "x\n"]}
        let document = b"\x00\x02\x00\x21\x00\x12\x00\x01\x00\x13\x00\x01\x00\x05\x01\x00\x02\x14\x00ab\
            \x02\x00\x0d\x00\x04\x01\x00\x0c\x0a\x00\x02x\n";
        assert_eq!(text(document).unwrap(), "{\"a\": 1, \"b\": [true, \"x\\n\"]}");
    }

    #[test]
    fn a_document_whose_values_overlap_is_refused() {
        // An array of arrays that are all the array itself would be endless.
        assert!(text(b"\x02\x02\x00\x0a\x00\x02\x00\x00\x02\x00\x00").is_err());
    }

    #[test]
    fn empty_is_null_and_doubles_keep_their_point() {
        assert_eq!(text(b"").unwrap(), "null");
        assert_eq!(text(b"\x0b\x00\x00\x00\x00\x00\x00\xf0\x3f").unwrap(), "1.0");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_document_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = write_text(&bytes, &mut Vec::new());
        }
    }
}
