//! Ranges, composites, arrays within them, and `hstore`, from their binary form as SELECT prints them.

use super::binary::{dimensions, Fields};
use super::types::PgType;
use crate::error::ValueError;

type Written = Result<(), ValueError>;

/// Writes a value of any type as SELECT prints it.
pub type Write = fn(&PgType, &[u8], &mut Vec<u8>) -> Written;

/// What is set in a range's first byte.
const EMPTY: u8 = 0x01;
const LOWER_INCLUDED: u8 = 0x02;
const UPPER_INCLUDED: u8 = 0x04;
const LOWER_INFINITE: u8 = 0x08;
const UPPER_INFINITE: u8 = 0x10;

/// As the server's `isspace` for ASCII.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Writes a text, in quotation marks if it is empty or has one of the bytes `special` or a space. `escape`:
/// for a byte that is marked in quotes, the mark before it.
fn write_quoted(text: &[u8], special: &[u8], escape: impl Fn(u8) -> Option<u8>, out: &mut Vec<u8>) {
    if !text.is_empty() && !text.iter().any(|byte| is_space(*byte) || special.contains(byte)) {
        return out.extend_from_slice(text);
    }
    write_in_quotes(text, escape, out);
}

fn write_in_quotes(text: &[u8], escape: impl Fn(u8) -> Option<u8>, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        out.extend(escape(*byte));
        out.push(*byte);
    }
    out.push(b'"');
}

/// In ranges and composites, what is marked is written twice.
fn doubled(byte: u8) -> Option<u8> {
    matches!(byte, b'"' | b'\\').then_some(byte)
}

fn backslash(byte: u8) -> Option<u8> {
    matches!(byte, b'"' | b'\\').then_some(b'\\')
}

fn text_of(write: Write, kind: &PgType, bytes: &[u8]) -> Result<Vec<u8>, ValueError> {
    let mut text = Vec::new();
    write(kind, bytes, &mut text)?;
    Ok(text)
}

/// `range_send`: flags, then the bounds that there are.
pub fn range(write: Write, kind: &PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut fields = Fields::new(bytes, "a range");
    let flags = fields.number(1)? as u8;
    if flags & EMPTY != 0 {
        out.extend_from_slice(b"empty");
        return fields.finish();
    }
    let bound = |fields: &mut Fields<'_>, out: &mut Vec<u8>| -> Written {
        let text = text_of(write, kind, fields.needed()?)?;
        write_quoted(&text, b"\"\\()[],", doubled, out);
        Ok(())
    };
    out.push(if flags & LOWER_INCLUDED != 0 { b'[' } else { b'(' });
    if flags & LOWER_INFINITE == 0 {
        bound(&mut fields, out)?;
    }
    out.push(b',');
    if flags & UPPER_INFINITE == 0 {
        bound(&mut fields, out)?;
    }
    out.push(if flags & UPPER_INCLUDED != 0 { b']' } else { b')' });
    fields.finish()
}

/// `multirange_send`: a number of ranges.
pub fn multirange(write: Write, kind: &PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut fields = Fields::new(bytes, "a multirange");
    out.push(b'{');
    for index in 0..fields.number(4)? {
        if index > 0 {
            out.push(b',');
        }
        range(write, kind, fields.needed()?, out)?;
    }
    out.push(b'}');
    fields.finish()
}

/// `record_send`: a number of fields, each with the number of its type. `kinds`: of the fields when the table
/// was described. A row type may have got more since then.
pub fn record(write: Write, kinds: &[PgType], bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut fields = Fields::new(bytes, "a composite");
    out.push(b'(');
    for index in 0..fields.number(4)? as usize {
        if index > 0 {
            out.push(b',');
        }
        let sent = PgType::of(fields.number(4)? as u32);
        if let Some(bytes) = fields.value()? {
            let text = text_of(write, kinds.get(index).unwrap_or(&sent), bytes)?;
            write_quoted(&text, b"\"\\(),", doubled, out);
        }
    }
    out.push(b')');
    fields.finish()
}

/// `array_send`, as `array_out` prints it: `{1,NULL,"a b"}`, with bounds before it unless all of them are 1.
pub fn array(write: Write, kind: &PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut fields = Fields::new(bytes, "an array");
    let dimensions = dimensions(&mut fields)?;
    if dimensions.iter().any(|(_, first)| *first != 1) {
        for (length, first) in &dimensions {
            let last = i64::from(*first) + *length as i64 - 1;
            out.extend_from_slice(format!("[{first}:{last}]").as_bytes());
        }
        out.push(b'=');
    }
    if dimensions.is_empty() {
        out.extend_from_slice(b"{}");
    } else {
        elements(write, &dimensions, kind, &mut fields, out)?;
    }
    fields.finish()
}

fn elements(
    write: Write,
    dimensions: &[(usize, i32)],
    kind: &PgType,
    fields: &mut Fields<'_>,
    out: &mut Vec<u8>,
) -> Written {
    let Some(((length, _), inner)) = dimensions.split_first() else {
        match fields.value()? {
            None => out.extend_from_slice(b"NULL"),
            Some(bytes) => {
                let text = text_of(write, kind, bytes)?;
                let special: &[u8] = match kind {
                    _ if text.eq_ignore_ascii_case(b"null") => &text,
                    PgType::Box => b"\"\\{};",
                    _ => b"\"\\{},",
                };
                write_quoted(&text, special, backslash, out);
            }
        }
        return Ok(());
    };
    out.push(b'{');
    for index in 0..*length {
        if index > 0 {
            out.push(kind.delimiter());
        }
        elements(write, inner, kind, fields, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// `hstore_send`: a number of keys with values.
pub fn hstore(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut fields = Fields::new(bytes, "an hstore");
    for index in 0..fields.number(4)? {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        write_in_quotes(fields.needed()?, backslash, out);
        out.extend_from_slice(b"=>");
        match fields.value()? {
            Some(value) => write_in_quotes(value, backslash, out),
            None => out.extend_from_slice(b"NULL"),
        }
    }
    fields.finish()
}
