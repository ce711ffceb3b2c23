//! Partial updates of JSON (`binlog_row_value_options=PARTIAL_JSON`). Applies the changes in an update event
//! to the old document, and writes the result as text.
//!
//! A change is an operation (replace, insert, remove), a path (`$.a[3]."b c"`) and, except for removals, a
//! document. Lengths are length-encoded integers of the protocol. Only containers on the paths are taken
//! apart. All others stay as bytes, so memory grows with the changes and not with the document. Members of an
//! object are in the server's order: by length, then by bytes.

use super::string::string;
use super::{malformed, too_deep, Elements, Result, Shapes, Style, Writer, DEPTH_MAX};
use crate::cursor::Cursor;

const REPLACE: u8 = 0;
const INSERT: u8 = 1;
const REMOVE: u8 = 2;

/// A value: the bytes of a document, or a container that was taken apart.
enum Node<'a> {
    Bytes { kind: u8, data: &'a [u8] },
    Object(Vec<(&'a [u8], Node<'a>)>),
    Array(Vec<Node<'a>>),
}

/// One step of a path. Keys are UTF-8, without quotes and escapes.
#[derive(Debug, PartialEq, Eq)]
enum Leg {
    Member(Vec<u8>),
    Cell(usize),
}

/// Appends the text of `document` after `changes` were applied, as the server would print it.
pub fn write_changed(document: &[u8], changes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if changes.is_empty() {
        return super::write_text(document, out);
    }
    let mut keys = Vec::new();
    let mut steps = Vec::new();
    let mut cursor = Cursor::new(changes, 0);
    while !cursor.is_empty() {
        let operation = cursor.u8("operation")?;
        let legs = parse_path(cursor.take_lenenc("path")?)?;
        let value = match operation {
            REPLACE | INSERT => Some(root(cursor.take_lenenc("value")?)?),
            REMOVE => None,
            other => return Err(malformed(format!("operation {other}"))),
        };
        keys.push(legs);
        steps.push((operation, value));
    }
    let mut whole = root(document)?;
    for ((operation, value), legs) in steps.into_iter().zip(&keys) {
        apply(&mut whole, operation, legs, value)?;
    }
    let shapes = &mut Shapes::default();
    let work = document.len() + changes.len();
    let mut writer = Writer { out, style: Style::default(), shapes, work };
    write(&whole, &mut writer, 0)
}

fn root(document: &[u8]) -> Result<Node<'_>> {
    let (kind, data) = document.split_first().ok_or_else(|| malformed("an empty document is changed"))?;
    Ok(Node::Bytes { kind: *kind, data })
}

fn apply<'a>(whole: &mut Node<'a>, operation: u8, legs: &'a [Leg], value: Option<Node<'a>>) -> Result<()> {
    let Some((last, parents)) = legs.split_last() else {
        return match (operation, value) {
            (REPLACE, Some(value)) => {
                *whole = value;
                Ok(())
            }
            _ => Err(malformed("a change of the whole document that does not replace it")),
        };
    };
    let mut node = whole;
    for leg in parents {
        node = descend(node, leg)?;
    }
    if operation == REPLACE {
        let place = descend(node, last)?;
        *place = value.ok_or_else(no_place)?;
        return Ok(());
    }
    node.take_apart()?;
    match (node, last, value) {
        (Node::Object(members), Leg::Member(key), value) => {
            let found = members.binary_search_by(|(other, _)| order(other).cmp(&order(key)));
            match (found, value) {
                (Err(place), Some(value)) => members.insert(place, (key, value)),
                (Ok(place), None) => drop(members.remove(place)),
                _ => return Err(no_place()),
            }
        }
        (Node::Array(cells), Leg::Cell(index), Some(value)) => cells.insert((*index).min(cells.len()), value),
        (Node::Array(cells), Leg::Cell(index), None) if *index < cells.len() => drop(cells.remove(*index)),
        _ => return Err(no_place()),
    }
    Ok(())
}

/// The order of an object's members.
fn order(key: &[u8]) -> (usize, &[u8]) {
    (key.len(), key)
}

fn descend<'n, 'a>(node: &'n mut Node<'a>, leg: &Leg) -> Result<&'n mut Node<'a>> {
    node.take_apart()?;
    match (node, leg) {
        (Node::Object(members), Leg::Member(key)) => {
            let found = members.binary_search_by(|(other, _)| order(other).cmp(&order(key)));
            found.ok().and_then(|place| members.get_mut(place)).map(|(_, value)| value)
        }
        (Node::Array(cells), Leg::Cell(index)) => cells.get_mut(*index),
        // If a value is not an array, `$[0]` is the value itself.
        (node, Leg::Cell(0)) => Some(node),
        _ => None,
    }
    .ok_or_else(no_place)
}

impl<'a> Node<'a> {
    /// Takes a container apart, into nodes. Other values stay as they are.
    fn take_apart(&mut self) -> Result<()> {
        let Node::Bytes { kind, data } = *self else { return Ok(()) };
        match kind {
            0x00 => *self = object::<2>(data)?,
            0x01 => *self = object::<4>(data)?,
            0x02 => *self = array::<2>(data)?,
            0x03 => *self = array::<4>(data)?,
            _ => {}
        }
        Ok(())
    }
}

fn object<const WIDTH: usize>(data: &[u8]) -> Result<Node<'_>> {
    let mut elements = Elements::<WIDTH>::open(data, true)?;
    let mut members = Vec::with_capacity(elements.count);
    for _ in 0..elements.count {
        let key = elements.next_key()?;
        let (kind, data, start) = elements.next_value()?;
        members.push((&elements.data[key], Node::Bytes { kind, data: &data[start..] }));
    }
    Ok(Node::Object(members))
}

fn array<const WIDTH: usize>(data: &[u8]) -> Result<Node<'_>> {
    let mut elements = Elements::<WIDTH>::open(data, false)?;
    let mut cells = Vec::with_capacity(elements.count);
    for _ in 0..elements.count {
        let (kind, data, start) = elements.next_value()?;
        cells.push(Node::Bytes { kind, data: &data[start..] });
    }
    Ok(Node::Array(cells))
}

fn write(node: &Node<'_>, writer: &mut Writer<'_>, depth: usize) -> Result<()> {
    if depth >= DEPTH_MAX {
        return Err(too_deep());
    }
    match node {
        Node::Bytes { kind, data } => writer.value(*kind, data, 0, depth)?,
        Node::Object(members) => {
            writer.out.push(b'{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    writer.out.extend_from_slice(b", ");
                }
                string::<true>(key, 0..key.len(), writer.out);
                write(value, writer, depth + 1)?;
            }
            writer.out.push(b'}');
        }
        Node::Array(cells) => {
            writer.out.push(b'[');
            for (index, value) in cells.iter().enumerate() {
                if index > 0 {
                    writer.out.extend_from_slice(b", ");
                }
                write(value, writer, depth + 1)?;
            }
            writer.out.push(b']');
        }
    }
    Ok(())
}

/// Parses a path: `$` and its steps, such as `.name`, `."any \"text\""` and `[3]`.
fn parse_path(path: &[u8]) -> Result<Vec<Leg>> {
    let wrong = || malformed("a path that is none");
    let mut rest = path.strip_prefix(b"$").ok_or_else(wrong)?;
    let mut legs = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        if legs.len() >= DEPTH_MAX {
            return Err(too_deep());
        }
        let end = match (first, after.first()) {
            (b'[', _) => {
                let end = memchr::memchr(b']', after).ok_or_else(wrong)?;
                let index = std::str::from_utf8(&after[..end]).ok().and_then(|digits| digits.parse().ok());
                legs.push(Leg::Cell(index.ok_or_else(wrong)?));
                end + 1
            }
            (b'.', Some(b'"')) => {
                let end = quoted_end(after).ok_or_else(wrong)?;
                let key: String = serde_json::from_slice(&after[..end]).map_err(|_| wrong())?;
                legs.push(Leg::Member(key.into_bytes()));
                end
            }
            (b'.', Some(_)) => {
                let end = after.iter().position(|byte| matches!(byte, b'.' | b'[')).unwrap_or(after.len());
                legs.push(Leg::Member(after[..end].to_vec()));
                end
            }
            _ => return Err(wrong()),
        };
        rest = &after[end..];
    }
    Ok(legs)
}

/// The position after the quote that ends the string at the beginning of the text.
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut place = 1;
    loop {
        match text.get(place)? {
            b'"' => return Some(place + 1),
            b'\\' => place += 2,
            _ => place += 1,
        }
    }
}

#[cold]
fn no_place() -> crate::error::ValueError {
    malformed("a change of a place that is not there")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // {"a": 1, "b": [true, "x\n"]}
    const DOCUMENT: &[u8] = b"\x00\x02\x00\x21\x00\x12\x00\x01\x00\x13\x00\x01\x00\x05\x01\x00\x02\x14\x00ab\
        \x02\x00\x0d\x00\x04\x01\x00\x0c\x0a\x00\x02x\n";

    fn change(operation: u8, path: &str, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![operation, path.len() as u8];
        bytes.extend(path.as_bytes());
        if operation != REMOVE {
            bytes.push(value.len() as u8);
            bytes.extend(value);
        }
        bytes
    }

    fn changed(changes: &[Vec<u8>]) -> Result<String> {
        let mut out = Vec::new();
        write_changed(DOCUMENT, &changes.concat(), &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn changes_are_applied_in_order_and_members_keep_the_servers_order() {
        let five = b"\x05\x05\x00";
        assert_eq!(
            changed(&[
                change(REPLACE, "$.b[1]", five),
                change(INSERT, "$.b[0]", b"\x04\x00"),
                change(REMOVE, "$.a", b""),
                change(INSERT, "$.\"a \\\"c\"", five),
                change(INSERT, "$.c", five),
            ])
            .unwrap(),
            r#"{"b": [null, true, 5], "c": 5, "a \"c": 5}"#
        );
    }

    #[test]
    fn a_change_of_what_is_not_there_is_refused() {
        for bad in [
            change(REPLACE, "$.c", b"\x04\x00"),
            change(REMOVE, "$.b[2]", b""),
            change(INSERT, "$.a", b"\x04\x00"),
            change(INSERT, "$.a.b", b"\x04\x00"),
            change(REPLACE, "a", b"\x04\x00"),
            change(REMOVE, "$", b""),
        ] {
            assert!(changed(&[bad]).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_changes_are_applied_or_an_error(
            document in proptest::collection::vec(any::<u8>(), 0..60),
            changes in proptest::collection::vec(any::<u8>(), 0..60),
            path in "\\$(\\.[ab]|\\[[0-2]\\]){0,3}",
            operation in 0..3_u8,
        ) {
            let _ = write_changed(&document, &changes, &mut Vec::new());
            let _ = write_changed(DOCUMENT, &change(operation, &path, &document), &mut Vec::new());
        }
    }
}
