//! Spatial values: SRID and WKB as the server stores them, and WKT as Maxwell prints it.

use crate::cursor::Cursor;
use crate::error::ValueError;

use super::json_numbers::write_double;

/// Collections in collections: more than any server nests, so that damaged bytes cannot exhaust the stack.
const DEPTH_MAX: usize = 64;

/// The SRID and the WKB.
pub fn split(value: &[u8]) -> Result<(u32, &[u8]), ValueError> {
    match value.split_first_chunk::<4>() {
        Some((srid, wkb)) if !wkb.is_empty() => Ok((u32::from_le_bytes(*srid), wkb)),
        _ => Err(ValueError::new("a spatial value of less than five bytes")),
    }
}

/// Coordinates of a WKB that is a point.
pub fn point(wkb: &[u8]) -> Option<(f64, f64)> {
    let mut cursor = Cursor::new(wkb, 0);
    let little = cursor.u8("byte order").ok()? == 1;
    let kind = number(&mut cursor, little)?;
    (kind == 1).then_some(())?;
    Some((coordinate(&mut cursor, little)?, coordinate(&mut cursor, little)?))
}

fn number(cursor: &mut Cursor<'_>, little: bool) -> Option<u32> {
    let value = cursor.u32("WKB number").ok()?;
    Some(if little { value } else { value.swap_bytes() })
}

fn coordinate(cursor: &mut Cursor<'_>, little: bool) -> Option<f64> {
    let bits = cursor.u64("coordinate").ok()?;
    Some(f64::from_bits(if little { bits } else { bits.swap_bytes() }))
}

/// Appends WKT. Numbers have no fraction if they need none, as JTS prints them.
pub fn write_wkt(wkb: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    let mut cursor = Cursor::new(wkb, 0);
    geometry(&mut cursor, out, true, 0).ok_or_else(|| ValueError::new("a spatial value that is no WKB"))
}

fn geometry(cursor: &mut Cursor<'_>, out: &mut Vec<u8>, named: bool, depth: usize) -> Option<()> {
    const NAMES: [&str; 7] = [
        "POINT",
        "LINESTRING",
        "POLYGON",
        "MULTIPOINT",
        "MULTILINESTRING",
        "MULTIPOLYGON",
        "GEOMETRYCOLLECTION",
    ];
    if depth > DEPTH_MAX {
        return None;
    }
    let little = cursor.u8("byte order").ok()? == 1;
    let kind = number(cursor, little)?;
    let name = NAMES.get((kind as usize).checked_sub(1)?)?;
    if named {
        out.extend_from_slice(name.as_bytes());
        out.push(b' ');
    }
    match kind {
        1 => parenthesised(out, |out| pair(cursor, little, out)),
        2 => points(cursor, little, out),
        3 => list(cursor, little, out, |cursor, out| points(cursor, little, out)),
        4..=6 => list(cursor, little, out, |cursor, out| geometry(cursor, out, false, depth + 1)),
        _ => list(cursor, little, out, |cursor, out| geometry(cursor, out, true, depth + 1)),
    }
}

fn parenthesised(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    out.push(b'(');
    write(out)?;
    out.push(b')');
    Some(())
}

fn points(cursor: &mut Cursor<'_>, little: bool, out: &mut Vec<u8>) -> Option<()> {
    list(cursor, little, out, |cursor, out| pair(cursor, little, out))
}

fn list(
    cursor: &mut Cursor<'_>,
    little: bool,
    out: &mut Vec<u8>,
    mut item: impl FnMut(&mut Cursor<'_>, &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    let count = number(cursor, little)?;
    if count == 0 {
        out.extend_from_slice(b"EMPTY");
        return Some(());
    }
    out.push(b'(');
    for index in 0..count {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        item(cursor, out)?;
    }
    out.push(b')');
    Some(())
}

fn pair(cursor: &mut Cursor<'_>, little: bool, out: &mut Vec<u8>) -> Option<()> {
    let (x, y) = (coordinate(cursor, little)?, coordinate(cursor, little)?);
    short(x, out);
    out.push(b' ');
    short(y, out);
    Some(())
}

fn short(value: f64, out: &mut Vec<u8>) {
    let start = out.len();
    write_double(value, out);
    if out[start..].ends_with(b".0") {
        out.truncate(out.len() - 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_read_and_printed() {
        let mut wkb = vec![1, 1, 0, 0, 0];
        wkb.extend_from_slice(&1.5_f64.to_le_bytes());
        wkb.extend_from_slice(&(-2.0_f64).to_le_bytes());
        assert_eq!(point(&wkb), Some((1.5, -2.0)));
        let mut text = Vec::new();
        write_wkt(&wkb, &mut text).unwrap();
        assert_eq!(text, b"POINT (1.5 -2)");
        assert!(write_wkt(&wkb[..20], &mut text).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_text_or_an_error(bytes: Vec<u8>) {
            let _ = write_wkt(&bytes, &mut Vec::new());
        }
    }
}
