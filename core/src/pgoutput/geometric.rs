//! Points, lines, shapes and vectors of numbers, from their binary form as SELECT prints them.

use super::binary::{wrong, Fields};
use super::float_text::{write_double, write_real};
use super::types::PgType;
use crate::error::ValueError;

type Written = Result<(), ValueError>;

pub fn write(kind: &PgType, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut fields = Fields::new(bytes, "a shape");
    match kind {
        PgType::Point => point(&mut fields, out)?,
        PgType::Segment => enclosed(b'[', 2, &mut fields, b']', out)?,
        PgType::Box => {
            point(&mut fields, out)?;
            out.push(b',');
            point(&mut fields, out)?;
        }
        PgType::Path => {
            let (open, close) = if fields.number(1)? != 0 { (b'(', b')') } else { (b'[', b']') };
            let count = fields.number(4)?;
            enclosed(open, count, &mut fields, close, out)?;
        }
        PgType::Polygon => {
            let count = fields.number(4)?;
            enclosed(b'(', count, &mut fields, b')', out)?;
        }
        PgType::Line => {
            for mark in [b'{', b',', b','] {
                out.push(mark);
                number(&mut fields, out)?;
            }
            out.push(b'}');
        }
        PgType::Circle => {
            out.push(b'<');
            point(&mut fields, out)?;
            out.push(b',');
            number(&mut fields, out)?;
            out.push(b'>');
        }
        PgType::Vector => {
            let count = fields.number(2)?;
            fields.take(2)?;
            out.push(b'[');
            for index in 0..count {
                if index > 0 {
                    out.push(b',');
                }
                write_real(f32::from_bits(fields.number(4)? as u32), out);
            }
            out.push(b']');
        }
        _ => return Err(wrong("a shape")),
    }
    fields.finish()
}

fn number(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Written {
    write_double(f64::from_bits(fields.number(8)?), out);
    Ok(())
}

fn point(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Written {
    out.push(b'(');
    number(fields, out)?;
    out.push(b',');
    number(fields, out)?;
    out.push(b')');
    Ok(())
}

fn enclosed(open: u8, count: u64, fields: &mut Fields<'_>, close: u8, out: &mut Vec<u8>) -> Written {
    out.push(open);
    for index in 0..count {
        if index > 0 {
            out.push(b',');
        }
        point(fields, out)?;
    }
    out.push(close);
    Ok(())
}
