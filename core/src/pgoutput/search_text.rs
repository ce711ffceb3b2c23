//! `tsvector` and `tsquery`, from their binary form as SELECT prints them.

use super::binary::{wrong, Fields};
use crate::error::ValueError;

type Written = Result<(), ValueError>;

/// Of positions and of lexemes that are asked for, the least first.
const WEIGHTS: [u8; 4] = *b"DCBA";
/// Nested deeper, a query is refused. The server's own limit is its stack.
const DEPTH_MAX: usize = 2_000;

/// `tsvectorsend`: a number of lexemes, each with its positions.
pub fn vector(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut rest = bytes;
    let count = number(&mut rest, 4)?;
    for index in 0..count {
        if index > 0 {
            out.push(b' ');
        }
        lexeme(&mut rest, out)?;
        for position in 0..number(&mut rest, 2)? {
            let value = number(&mut rest, 2)?;
            out.push(if position == 0 { b':' } else { b',' });
            out.extend_from_slice((value & 0x3fff).to_string().as_bytes());
            if value >> 14 != 0 {
                out.push(WEIGHTS[(value >> 14) as usize]);
            }
        }
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(wrong("a tsvector"))
    }
}

fn number(rest: &mut &[u8], width: usize) -> Result<u32, ValueError> {
    let (bytes, behind) = rest.split_at_checked(width).ok_or_else(|| wrong("a tsvector or tsquery"))?;
    *rest = behind;
    Fields::new(bytes, "a number").number(width).map(|value| value as u32)
}

/// A text that ends with a zero byte, in quotation marks.
fn lexeme(rest: &mut &[u8], out: &mut Vec<u8>) -> Written {
    let length = rest.iter().position(|byte| *byte == 0).ok_or_else(|| wrong("a lexeme"))?;
    out.push(b'\'');
    for byte in &rest[..length] {
        if matches!(byte, b'\'' | b'\\') {
            out.push(*byte);
        }
        out.push(*byte);
    }
    out.push(b'\'');
    *rest = &rest[length + 1..];
    Ok(())
}

/// `tsquerysend`: a number of items, an operator before its right operand and that before its left one.
pub fn query(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut rest = bytes;
    if number(&mut rest, 4)? > 0 {
        out.extend_from_slice(&operand(&mut rest, 0, false, 0)?);
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(wrong("a tsquery"))
    }
}

/// `around`: how strong the operator around it binds. `behind_phrase`: it is the right operand of `<->`.
fn operand(rest: &mut &[u8], around: u8, behind_phrase: bool, depth: usize) -> Result<Vec<u8>, ValueError> {
    if depth > DEPTH_MAX {
        return Err(ValueError::new("a tsquery that is nested too deep"));
    }
    let mut out = Vec::new();
    if number(rest, 1)? == 1 {
        let (weights, is_prefix) = (number(rest, 1)?, number(rest, 1)? != 0);
        lexeme(rest, &mut out)?;
        if weights != 0 || is_prefix {
            out.push(b':');
        }
        if is_prefix {
            out.push(b'*');
        }
        out.extend((0..4).rev().filter(|bit| weights >> bit & 1 != 0).map(|bit| WEIGHTS[bit]));
        return Ok(out);
    }
    let operator = number(rest, 1)?;
    let binds = match operator {
        1 => 4,
        2 => 2,
        3 => 1,
        4 => 3,
        _ => return Err(wrong("a tsquery")),
    };
    let is_enclosed = binds < around || (operator == 4 && behind_phrase);
    if is_enclosed {
        out.extend_from_slice(b"( ");
    }
    if operator == 1 {
        out.push(b'!');
        out.extend(operand(rest, binds, false, depth + 1)?);
    } else {
        let sign = match operator {
            2 => " & ".to_owned(),
            3 => " | ".to_owned(),
            _ => match number(rest, 2)? {
                1 => " <-> ".to_owned(),
                distance => format!(" <{distance}> "),
            },
        };
        let right = operand(rest, binds, operator == 4, depth + 1)?;
        out.extend(operand(rest, binds, false, depth + 1)?);
        out.extend_from_slice(sign.as_bytes());
        out.extend(right);
    }
    if is_enclosed {
        out.extend_from_slice(b" )");
    }
    Ok(out)
}
