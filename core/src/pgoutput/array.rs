//! Arrays as lists or as JSON documents, from both of their forms.
//!
//! An array of one dimension whose first element is number 1 is a list; any other is a document in the
//! list's place (`list`). Lower bounds are left out of documents. In them, numbers are numbers, booleans true
//! or false, and documents themselves; all else is a string, as SELECT prints it.

use super::shown::{self, wrong};
use super::types::PgType;
use crate::cursor::Cursor;
use crate::encode::json_text::write_utf8;
use crate::error::ValueError;
use crate::list::{append_document, Written as List};

type Written = Result<(), ValueError>;

/// The server's `MAXDIM`.
const DIMENSIONS_MAX: usize = 6;

/// Appends the list of an array's binary form. `append` appends an element of a type from its bytes.
pub fn list_of_binary(
    bytes: &[u8],
    append: impl Fn(PgType, &[u8], &mut Vec<u8>) -> Written,
    out: &mut Vec<u8>,
) -> Written {
    let mut cursor = Cursor::new(bytes, 0);
    let (element, lengths, is_list) = head(&mut cursor)?;
    if !is_list {
        return append_document(out, |out| write_binary(bytes, out));
    }
    let mut list = List::default();
    for _ in 0..lengths.first().copied().unwrap_or(0) {
        match next(&mut cursor)? {
            None => list.null(),
            Some(bytes) => append(element, bytes, list.element())?,
        }
    }
    finish(&cursor)?;
    list.finish(out).ok_or_else(|| wrong("an array"))
}

/// The type of the elements, the lengths of the dimensions, and whether the array is a list.
fn head(cursor: &mut Cursor<'_>) -> Result<(PgType, Vec<usize>, bool), ValueError> {
    let mut read = || cursor.uint_be(4, "array").map_err(|_| wrong("an array"));
    let dimensions = read()? as usize;
    read()?;
    let element = PgType::of(read()? as u32);
    if dimensions > DIMENSIONS_MAX {
        return Err(wrong("an array"));
    }
    let (mut lengths, mut is_list) = (Vec::with_capacity(dimensions), dimensions < 2);
    for _ in 0..dimensions {
        lengths.push(read()? as usize);
        is_list &= read()? == 1;
    }
    Ok((element, lengths, is_list))
}

/// The bytes of the next element. None: it is NULL.
fn next<'a>(cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, ValueError> {
    let length = cursor.uint_be(4, "array").map_err(|_| wrong("an array"))? as u32;
    if length == u32::MAX {
        return Ok(None);
    }
    cursor.take(length as usize, "array").map(Some).map_err(|_| wrong("an array"))
}

fn finish(cursor: &Cursor<'_>) -> Written {
    match cursor.is_empty() {
        true => Ok(()),
        false => Err(wrong("an array")),
    }
}

/// From the binary form (`array_send`).
pub fn write_binary(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut cursor = Cursor::new(bytes, 0);
    let (element, lengths, _) = head(&mut cursor)?;
    if lengths.is_empty() {
        out.extend_from_slice(b"[]");
    } else {
        nested(&lengths, element, &mut cursor, out)?;
    }
    finish(&cursor)
}

fn nested(lengths: &[usize], element: PgType, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Written {
    let Some((length, inner)) = lengths.split_first() else {
        return match next(cursor)? {
            None => {
                out.extend_from_slice(b"null");
                Ok(())
            }
            Some(bytes) => write_element(element, bytes, out),
        };
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

/// Appends the list of an array's text form. `append` appends an element from its text.
pub fn list_of_text(
    element: PgType,
    text: &[u8],
    append: impl Fn(&[u8], &mut Vec<u8>) -> Written,
    out: &mut Vec<u8>,
) -> Written {
    // Bounds are before the braces unless all of them are 1.
    if text.first() != Some(&b'{') || text.get(1) == Some(&b'{') {
        return append_document(out, |out| write_text(element, text, out));
    }
    let mut list = List::default();
    parts(text, |part| {
        match part {
            Part::Null => list.null(),
            Part::Value(text) => append(text, list.element())?,
            Part::Mark(_) => {}
        }
        Ok(())
    })?;
    list.finish(out).ok_or_else(|| wrong("an array"))
}

/// From the text form (`array_out`): `{1,NULL,{"a b"}}`, perhaps with bounds before it.
pub fn write_text(element: PgType, text: &[u8], out: &mut Vec<u8>) -> Written {
    parts(text, |part| {
        match part {
            Part::Mark(b'{') => out.push(b'['),
            Part::Mark(b'}') => out.push(b']'),
            Part::Mark(mark) => out.push(mark),
            Part::Null => out.extend_from_slice(b"null"),
            Part::Value(text) => write_shown(element, text, out),
        }
        Ok(())
    })
}

enum Part<'a> {
    /// A brace or a comma.
    Mark(u8),
    Null,
    Value(&'a [u8]),
}

fn parts(text: &[u8], mut take: impl FnMut(Part<'_>) -> Written) -> Written {
    let start = text.iter().position(|byte| *byte == b'{').ok_or_else(|| wrong("an array"))?;
    let mut rest = &text[start..];
    let (mut depth, mut value) = (0, Vec::new());
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'{' | b'}' | b',' => {
                depth += i32::from(*byte == b'{') - i32::from(*byte == b'}');
                take(Part::Mark(*byte))?;
                if depth == 0 {
                    break;
                }
            }
            b'"' => {
                value.clear();
                rest = quoted(rest, &mut value)?;
                take(Part::Value(&value))?;
            }
            _ => {
                value.clear();
                value.push(*byte);
                let length = rest.iter().position(|byte| matches!(byte, b',' | b'}'));
                let length = length.ok_or_else(|| wrong("an array"))?;
                value.extend_from_slice(&rest[..length]);
                rest = &rest[length..];
                take(match value.eq_ignore_ascii_case(b"null") {
                    true => Part::Null,
                    false => Part::Value(&value),
                })?;
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
