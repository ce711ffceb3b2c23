//! Converts MySQL's binary JSON to text, byte for byte as the server prints it.
//!
//! A document is a type byte and a value. An object or array begins with its count and its size. Then come
//! entries of fixed size (in objects, those of the keys first), and then the values that did not fit into the
//! entries. Offsets count from the container's first byte. They have 2 bytes in "small" containers and 4 in
//! "large" ones. (json_binary.h of the server describes the format; this is written from that description.)

mod change;
mod shape;
mod string;

use std::io::Write;
use std::ops::Range;

use self::string::string;
use crate::cursor::Cursor;
use crate::decimal::DecimalImage;
use crate::digits::{write_i64, write_u64};
use crate::double::write_double;
use crate::error::{DecodeError, ValueError};
use crate::temporal::{Date, DateTime, Time};
use crate::type_code as code;

pub use self::change::write_changed;
pub use self::shape::Shapes;

type Result<T> = std::result::Result<T, ValueError>;

/// The server refuses deeper documents.
const DEPTH_MAX: usize = 101;

impl From<DecodeError> for ValueError {
    fn from(error: DecodeError) -> Self {
        Self::new(format!("malformed JSON document: {} (byte {})", error.reason(), error.offset()))
    }
}

/// Differences between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// MySQL 5.7 prints a double without fraction like an integer, later ones with `.0`.
    pub bare_doubles: bool,
}

/// Appends the document as text, as MySQL 8.0 and later print it. An empty document is the literal null, as
/// for the server. The text is UTF-8 if the document's strings are, which servers ensure.
pub fn write_text(document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    write_text_as(Style::default(), document, out)
}

/// Writes a document as text in the style of a server.
pub fn write_text_as(style: Style, document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    write_text_with(&mut Shapes::default(), style, document, out)
}

/// Writes a document as text. Faster for documents with the keys of earlier ones that had the same `shapes`.
#[inline]
pub fn write_text_with(shapes: &mut Shapes, style: Style, document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let Some((kind, data)) = document.split_first() else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    let mut writer = Writer { out, style, shapes, work: document.len() };
    writer.value(*kind, data, 0, 0)
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    style: Style,
    shapes: &'a mut Shapes,
    /// Bytes of the document that have not been read yet. Values never overlap in documents of a server. A
    /// document in which they do, so that its text would be huge, is refused.
    work: usize,
}

impl Writer<'_> {
    /// Writes the value at `start` in a container's bytes. `start` is not beyond their end.
    #[inline]
    fn value(&mut self, kind: u8, data: &[u8], start: usize, depth: usize) -> Result<()> {
        let mut cursor = Cursor::new(&data[start..], 0);
        match kind {
            0x00 => self.object::<2>(cursor.rest(), depth)?,
            0x01 => self.object::<4>(cursor.rest(), depth)?,
            0x02 => self.array::<2>(cursor.rest(), depth)?,
            0x03 => self.array::<4>(cursor.rest(), depth)?,
            0x04 => self.literal(cursor.u8("literal")?)?,
            0x05 => write_i64(i64::from(cursor.u16("int16")? as i16), self.out),
            0x06 => write_u64(cursor.u16("uint16")?.into(), self.out),
            0x07 => write_i64(i64::from(cursor.u32("int32")? as i32), self.out),
            0x08 => write_u64(cursor.u32("uint32")?.into(), self.out),
            0x09 => write_i64(cursor.i64("int64")?, self.out),
            0x0a => write_u64(cursor.u64("uint64")?, self.out),
            0x0b => self.double(cursor.f64("double")?),
            0x0c => {
                let length = take_sized(&mut cursor)?.len();
                self.spend(length)?;
                let end = start + cursor.position();
                string::<false>(data, end - length..end, self.out);
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

    /// `WIDTH`: bytes of an offset, 2 in small containers and 4 in large ones.
    fn object<const WIDTH: usize>(&mut self, data: &[u8], depth: usize) -> Result<()> {
        let mut elements = self.open::<WIDTH>(data, true, depth)?;
        let (entries, data) = (elements.keys, elements.data);
        let (slot, shape) = self.shapes.take::<WIDTH>(entries, data);
        if let Some(shape) = shape {
            self.spend(shape.keys_size)?;
            for index in 0..elements.count {
                shape.write(index, self.out);
                let (kind, data, start) = elements.next_value()?;
                self.value(kind, data, start, depth + 1)?;
            }
            self.shapes.put(slot, shape);
        } else {
            self.out.push(b'{');
            let mut keys = Vec::with_capacity(elements.count);
            for index in 0..elements.count {
                if index > 0 {
                    self.out.extend_from_slice(b", ");
                }
                let key = elements.next_key()?;
                self.spend(key.len())?;
                string::<true>(data, key.clone(), self.out);
                keys.push(key);
                let (kind, data, start) = elements.next_value()?;
                self.value(kind, data, start, depth + 1)?;
            }
            self.shapes.note::<WIDTH>(slot, entries, data, &keys);
        }
        self.out.push(b'}');
        Ok(())
    }

    fn array<const WIDTH: usize>(&mut self, data: &[u8], depth: usize) -> Result<()> {
        let mut elements = self.open::<WIDTH>(data, false, depth)?;
        self.out.push(b'[');
        for index in 0..elements.count {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            let (kind, data, start) = elements.next_value()?;
            self.value(kind, data, start, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    #[inline(always)] // Else one width or the other is not, by what else the crate has.
    fn open<'d, const WIDTH: usize>(
        &mut self,
        data: &'d [u8],
        object: bool,
        depth: usize,
    ) -> Result<Elements<'d, WIDTH>> {
        if depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        let elements = Elements::open(data, object)?;
        self.spend(elements.keys.len() + elements.values.len())?;
        Ok(elements)
    }

    #[inline]
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

    /// Adds `.0` to a double that would look like an integer, for servers that do so.
    fn double(&mut self, value: f64) {
        let start = self.out.len();
        write_double(value, self.out);
        if !self.style.bare_doubles && !self.out[start..].iter().any(|byte| matches!(byte, b'.' | b'e')) {
            self.out.extend_from_slice(b".0");
        }
    }

    /// Writes an SQL value for which JSON has no type, by its column type.
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

/// Reads the entries of an object or array, one by one.
struct Elements<'a, const WIDTH: usize> {
    /// The bytes of the container, and nothing after it.
    data: &'a [u8],
    count: usize,
    /// Entries that have not been read yet.
    keys: &'a [u8],
    values: &'a [u8],
}

impl<'a, const WIDTH: usize> Elements<'a, WIDTH> {
    #[inline]
    fn open(data: &'a [u8], object: bool) -> Result<Self> {
        let mut head = Cursor::new(data, 0);
        let count = head.uint_le(WIDTH, "element count")? as usize;
        let size = head.uint_le(WIDTH, "container size")? as usize;
        let data = data.get(..size).ok_or_else(|| malformed("a container larger than its document"))?;
        let keys = if object { count.saturating_mul(WIDTH + 2) } else { 0 };
        let values = count.saturating_mul(WIDTH + 1);
        let table = data.get(2 * WIDTH..).and_then(|table| table.get(..keys.saturating_add(values)));
        let (keys, values) = table.ok_or_else(|| malformed("more elements than bytes"))?.split_at(keys);
        Ok(Self { data, count, keys, values })
    }

    /// Where the next key is in `data`.
    #[inline]
    fn next_key(&mut self) -> Result<Range<usize>> {
        let Some((entry, rest)) = self.keys.split_at_checked(WIDTH + 2) else { return Err(no_entry()) };
        self.keys = rest;
        let start = offset::<WIDTH>(entry);
        let end = start + usize::from(u16::from_le_bytes([entry[WIDTH], entry[WIDTH + 1]]));
        if end > self.data.len() {
            return Err(malformed("a key outside its object"));
        }
        Ok(start..end)
    }

    /// The type of the next value, the bytes that contain it, and its place in them. Literals and small
    /// integers are in the entry itself. For other values the entry has the offset.
    #[inline]
    fn next_value(&mut self) -> Result<(u8, &'a [u8], usize)> {
        let Some((entry, rest)) = self.values.split_at_checked(WIDTH + 1) else { return Err(no_entry()) };
        self.values = rest;
        let kind = entry[0];
        if matches!(kind, 0x04..=0x06) || (WIDTH == 4 && matches!(kind, 0x07 | 0x08)) {
            return Ok((kind, entry, 1));
        }
        let start = offset::<WIDTH>(&entry[1..]);
        if start > self.data.len() {
            return Err(malformed("a value outside its container"));
        }
        Ok((kind, self.data, start))
    }
}

#[inline]
fn offset<const WIDTH: usize>(entry: &[u8]) -> usize {
    let mut wide = [0; 4];
    wide[..WIDTH].copy_from_slice(&entry[..WIDTH]);
    u32::from_le_bytes(wide) as usize
}

/// Reads bytes with their length before them: 7 bits per byte, the lowest first. The top bit of a byte says
/// that more bytes of the length follow.
#[inline]
fn take_sized<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
    let first = cursor.u8("length")?;
    if first & 0x80 == 0 {
        return Ok(cursor.take(first.into(), "string")?);
    }
    let mut length = usize::from(first & 0x7f);
    for shift in [7, 14, 21, 28] {
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

/// Writes Base64 with a line break, which JSON escapes, after every 76 characters.
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
fn no_entry() -> ValueError {
    malformed("more elements than entries")
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
