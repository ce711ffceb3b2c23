//! Arrays as lists or as JSON documents, from both of their forms.
//!
//! An array of one dimension whose first element is number 1 is a list; any other is a document in the
//! list's place (`list`). Lower bounds are left out of documents. In them, numbers are numbers, booleans true
//! or false, and documents themselves; all else is a string, as SELECT prints it.

use super::binary::{dimensions, wrong, Fields};
use super::numeric::{money, write_money};
use super::shown;
use super::types::PgType;
use crate::encode::json_text::write_utf8;
use crate::error::ValueError;
use crate::list::{append_document, Written as List};

type Written = Result<(), ValueError>;

/// Appends the list of an array's binary form. `append` appends an element from its bytes.
pub fn list_of_binary(
    element: &PgType,
    bytes: &[u8],
    append: impl Fn(&[u8], &mut Vec<u8>) -> Written,
    out: &mut Vec<u8>,
) -> Written {
    let mut fields = Fields::new(bytes, "an array");
    let dimensions = dimensions(&mut fields)?;
    if dimensions.len() > 1 || dimensions.iter().any(|(_, first)| *first != 1) {
        return append_document(out, |out| write_binary(element, bytes, out));
    }
    let mut list = List::default();
    for _ in 0..dimensions.first().map_or(0, |(length, _)| *length) {
        match fields.value()? {
            None => list.null(),
            Some(bytes) => append(bytes, list.element())?,
        }
    }
    fields.finish()?;
    list.finish(out).ok_or_else(|| wrong("an array"))
}

/// From the binary form (`array_send`).
pub fn write_binary(element: &PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut fields = Fields::new(bytes, "an array");
    let dimensions = dimensions(&mut fields)?;
    if dimensions.is_empty() {
        out.extend_from_slice(b"[]");
    } else {
        nested(&dimensions, element, &mut fields, out)?;
    }
    fields.finish()
}

fn nested(
    dimensions: &[(usize, i32)],
    element: &PgType,
    fields: &mut Fields<'_>,
    out: &mut Vec<u8>,
) -> Written {
    let Some(((length, _), inner)) = dimensions.split_first() else {
        match fields.value()? {
            None => out.extend_from_slice(b"null"),
            Some(bytes) => {
                let mut text = Vec::new();
                shown::write(element, bytes, &mut text)?;
                write_shown(element, &text, out)?;
            }
        }
        return Ok(());
    };
    out.push(b'[');
    for index in 0..*length {
        if index > 0 {
            out.push(b',');
        }
        nested(inner, element, fields, out)?;
    }
    out.push(b']');
    Ok(())
}

/// An element from its text.
fn write_shown(element: &PgType, text: &[u8], out: &mut Vec<u8>) -> Written {
    match element {
        PgType::Money => write_money(money(text)?, out),
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
    Ok(())
}

/// Appends the list of an array's text form. `append` appends an element from its text.
pub fn list_of_text(
    element: &PgType,
    text: &[u8],
    append: impl Fn(&[u8], &mut Vec<u8>) -> Written,
    out: &mut Vec<u8>,
) -> Written {
    // Bounds are before the braces unless all of them are 1.
    if text.first() != Some(&b'{') || text.get(1) == Some(&b'{') {
        return append_document(out, |out| write_text(element, text, out));
    }
    let mut list = List::default();
    parts(element.delimiter(), text, |part| {
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
pub fn write_text(element: &PgType, text: &[u8], out: &mut Vec<u8>) -> Written {
    parts(element.delimiter(), text, |part| {
        match part {
            Part::Mark(b'{') => out.push(b'['),
            Part::Mark(b'}') => out.push(b']'),
            Part::Mark(_) => out.push(b','),
            Part::Null => out.extend_from_slice(b"null"),
            Part::Value(text) => write_shown(element, text, out)?,
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

fn parts(delimiter: u8, text: &[u8], mut take: impl FnMut(Part<'_>) -> Written) -> Written {
    let start = text.iter().position(|byte| *byte == b'{').ok_or_else(|| wrong("an array"))?;
    let mut rest = &text[start..];
    let (mut depth, mut value) = (0, Vec::new());
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            byte if matches!(byte, b'{' | b'}') || *byte == delimiter => {
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
                let length = rest.iter().position(|byte| *byte == b'}' || *byte == delimiter);
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
        write_text(&element, text.as_bytes(), &mut out).unwrap();
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
            assert!(write_text(&PgType::Int4, text.as_bytes(), &mut Vec::new()).is_err(), "{text}");
        }
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
        for bytes in [
            numbers(&[]),
            numbers(&[7, 0, 23]),
            numbers(&[1, 0, 23, u32::MAX, 1]),
            numbers(&[0, 0, 23, 1]),
            numbers(&[2, 0, 23, u32::MAX, 1, 0, 1]),
        ] {
            assert!(write_binary(&PgType::Int4, &bytes, &mut Vec::new()).is_err());
        }
        let mut out = Vec::new();
        write_binary(&PgType::Int4, &numbers(&[1, 1, 23, 2, 1, 4, 7, u32::MAX]), &mut out).unwrap();
        assert_eq!(out, b"[7,null]");
    }
}
