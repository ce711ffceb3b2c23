//! Arrays as JSON documents, from both of their forms.
//!
//! Lower bounds are left out. Numbers are numbers, booleans true or false, and documents themselves; all else
//! is a string, as SELECT prints it.

use super::shown::{self, wrong};
use super::types::PgType;
use crate::cursor::Cursor;
use crate::encode::json_text::write_utf8;
use crate::error::ValueError;

type Written = Result<(), ValueError>;

/// The server's `MAXDIM`.
const DIMENSIONS_MAX: usize = 6;

/// From the binary form (`array_send`).
pub fn write_binary(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut cursor = Cursor::new(bytes, 0);
    let read = |cursor: &mut Cursor<'_>| cursor.uint_be(4, "array").map_err(|_| wrong("an array"));
    let dimensions = read(&mut cursor)? as usize;
    read(&mut cursor)?;
    let element = PgType::of(read(&mut cursor)? as u32);
    if dimensions > DIMENSIONS_MAX {
        return Err(wrong("an array"));
    }
    let mut lengths = [0; DIMENSIONS_MAX];
    for length in &mut lengths[..dimensions] {
        *length = read(&mut cursor)? as usize;
        read(&mut cursor)?;
    }
    if dimensions == 0 {
        out.extend_from_slice(b"[]");
    } else {
        nested(&lengths[..dimensions], element, &mut cursor, out)?;
    }
    if cursor.is_empty() {
        Ok(())
    } else {
        Err(wrong("an array"))
    }
}

fn nested(lengths: &[usize], element: PgType, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Written {
    let Some((length, inner)) = lengths.split_first() else {
        let length = cursor.uint_be(4, "array").map_err(|_| wrong("an array"))? as u32;
        if length == u32::MAX {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        let bytes = cursor.take(length as usize, "array").map_err(|_| wrong("an array"))?;
        return write_element(element, bytes, out);
    };
    if *length > cursor.remaining() / 4 {
        return Err(wrong("an array"));
    }
    out.push(b'[');
    for index in 0..*length {
        if index > 0 {
            out.push(b',');
        }
        nested(inner, element, cursor, out)?;
    }
    out.push(b']');
    Ok(())
}

fn write_element(element: PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    if element == PgType::Bool {
        out.extend_from_slice(if shown::bool_of(bytes)? { b"true" } else { b"false" });
        return Ok(());
    }
    let mut text = Vec::new();
    shown::write(element, bytes, &mut text)?;
    write_shown(element, &text, out);
    Ok(())
}

/// An element from its text.
fn write_shown(element: PgType, text: &[u8], out: &mut Vec<u8>) {
    match element {
        PgType::Bool => out.extend_from_slice(if text == b"t" { b"true" } else { b"false" }),
        PgType::Json | PgType::Jsonb => out.extend_from_slice(text),
        PgType::Int2
        | PgType::Int4
        | PgType::Int8
        | PgType::Oid
        | PgType::Xid8
        | PgType::Float4
        | PgType::Float8
        | PgType::Numeric
            if text.last().is_some_and(u8::is_ascii_digit) =>
        {
            out.extend_from_slice(text);
        }
        _ => write_utf8(text, out),
    }
}

/// From the text form (`array_out`): `{1,NULL,{"a b"}}`, perhaps with bounds before it.
pub fn write_text(element: PgType, text: &[u8], out: &mut Vec<u8>) -> Written {
    let start = text.iter().position(|byte| *byte == b'{').ok_or_else(|| wrong("an array"))?;
    let mut rest = &text[start..];
    let (mut depth, mut value) = (0, Vec::new());
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'{' => {
                depth += 1;
                out.push(b'[');
            }
            b'}' => {
                depth -= 1;
                out.push(b']');
                if depth == 0 {
                    break;
                }
            }
            b',' => out.push(b','),
            b'"' => {
                value.clear();
                rest = quoted(rest, &mut value)?;
                write_shown(element, &value, out);
            }
            _ => {
                value.clear();
                value.push(*byte);
                let length = rest.iter().position(|byte| matches!(byte, b',' | b'}'));
                let length = length.ok_or_else(|| wrong("an array"))?;
                value.extend_from_slice(&rest[..length]);
                rest = &rest[length..];
                match value.eq_ignore_ascii_case(b"null") {
                    true => out.extend_from_slice(b"null"),
                    false => write_shown(element, &value, out),
                }
            }
        }
    }
    if depth == 0 && rest.is_empty() {
        Ok(())
    } else {
        Err(wrong("an array"))
    }
}

/// Reads a value up to its quotation mark, and returns what is behind it.
fn quoted<'a>(text: &'a [u8], value: &mut Vec<u8>) -> Result<&'a [u8], ValueError> {
    let mut rest = text;
    loop {
        match rest {
            [b'"', behind @ ..] => return Ok(behind),
            [b'\\', byte, behind @ ..] | [byte, behind @ ..] => {
                value.push(*byte);
                rest = behind;
            }
            [] => return Err(wrong("an array")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(element: PgType, text: &str) -> String {
        let mut out = Vec::new();
        write_text(element, text.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_of_arrays_become_documents() {
        assert_eq!(of_text(PgType::Int4, "{1,NULL,-3}"), "[1,null,-3]");
        assert_eq!(of_text(PgType::Int4, "{}"), "[]");
        assert_eq!(of_text(PgType::Int4, "[0:1]={1,2}"), "[1,2]");
        assert_eq!(of_text(PgType::Int4, "{{1,2},{3,4}}"), "[[1,2],[3,4]]");
        assert_eq!(of_text(PgType::Bool, "{t,f}"), "[true,false]");
        assert_eq!(of_text(PgType::Float8, "{NaN,1.5,Infinity}"), r#"["NaN",1.5,"Infinity"]"#);
        assert_eq!(
            of_text(PgType::Text, r#"{a,"b c","NULL","q\"\\",""}"#),
            r#"["a","b c","NULL","q\"\\",""]"#
        );
        assert_eq!(of_text(PgType::Jsonb, r#"{"{\"a\": 1}"}"#), r#"[{"a": 1}]"#);
    }

    #[test]
    fn texts_and_bytes_that_are_no_arrays_are_refused() {
        for text in ["", "1", "{", "{1", "{\"a", "{1}}", "{1}x"] {
            assert!(write_text(PgType::Int4, text.as_bytes(), &mut Vec::new()).is_err(), "{text}");
        }
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
        for bytes in
            [numbers(&[]), numbers(&[7, 0, 23]), numbers(&[1, 0, 23, u32::MAX, 1]), numbers(&[0, 0, 23, 1])]
        {
            assert!(write_binary(&bytes, &mut Vec::new()).is_err());
        }
        let mut out = Vec::new();
        write_binary(&numbers(&[1, 1, 23, 2, 1, 4, 7, u32::MAX]), &mut out).unwrap();
        assert_eq!(out, b"[7,null]");
    }
}
