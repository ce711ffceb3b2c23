//! Values as Debezium's JSON converter writes them.

use super::columns::Column;
use super::debezium_options::{BigintUnsigned, Binaries, Decimals, Options, TimePrecision};
use super::geometry;
use super::json_form::Form;
use super::json_numbers::{write_double, write_floats};
use super::json_text::{write_base64, write_utf8};
use super::unscaled;
use crate::column::encode::write_hex;
use crate::decimal::{self, DecimalImage};
use crate::digits::{write_i64, write_u64};
use crate::error::ValueError;
use crate::rows::Taken;
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Instant, Time};

pub struct DebeziumForm {
    pub options: Options,
}

impl DebeziumForm {
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    fn bytes(&self, value: &[u8], zeros: usize, out: &mut Vec<u8>) {
        match self.options.binary_handling_mode {
            Binaries::Bytes | Binaries::Base64 => write_base64(value, zeros, out),
            Binaries::Base64UrlSafe => {
                let start = out.len();
                write_base64(value, zeros, out);
                for byte in &mut out[start..] {
                    *byte = match *byte {
                        b'+' => b'-',
                        b'/' => b'_',
                        other => other,
                    };
                }
            }
            Binaries::Hex => {
                out.push(b'"');
                let start = out.len();
                write_hex(value, zeros, out);
                out[start..].make_ascii_lowercase();
                out.push(b'"');
            }
        }
    }

    /// What stands for a date that the calendar does not have: null, or the first day in a column that must
    /// not be null.
    fn no_date(column: &Column, first: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(if column.schema.nullable { b"null" } else { first });
    }

    fn iso(value: DateTime, fsp: u8, out: &mut Vec<u8>) {
        out.push(b'"');
        let start = out.len();
        value.write_text(fsp, out);
        out[start + 10] = b'T';
        out.extend_from_slice(b"Z\"");
    }
}

impl Form for DebeziumForm {
    /// Messages have a schema, which says what the elements are.
    const DOCUMENTS: bool = false;

    fn extreme(&self, column: &Column, text: &[u8], out: &mut Vec<u8>) -> Taken {
        let is_text = matches!(column.kind, ColumnType::Decimal { .. })
            && self.options.decimal_handling_mode != Decimals::Precise;
        if !is_text {
            return Err(ValueError::new(
                "a date that is infinite, before the year 1 or after 9999, or a number that is NaN or \
                 infinite, which Debezium's format has no value for; for numbers, set \
                 `decimal.handling.mode` to `string` or `double`",
            ));
        }
        write_utf8(text, out);
        Ok(())
    }

    fn uint(&self, column: &Column, value: u64, out: &mut Vec<u8>) {
        let precise = self.options.bigint_unsigned_handling_mode == BigintUnsigned::Precise;
        // A Decimal, whatever `decimal.handling.mode` says.
        if precise && matches!(column.kind, ColumnType::Integer { width: 8, .. }) {
            return unscaled::of_number(value.into(), |bytes| write_base64(bytes, 0, out));
        }
        write_u64(value, out);
    }

    fn decimal(&self, column: &Column, image: DecimalImage<'_>, out: &mut Vec<u8>) -> Taken {
        match self.options.decimal_handling_mode {
            Decimals::Precise if matches!(column.kind, ColumnType::Decimal { precision: 39.., .. }) => {
                let mut text = Vec::with_capacity(68);
                image.write_text(&mut text)?;
                write_base64(&unscaled::of_text(&text), 0, out);
            }
            Decimals::Precise => unscaled::of_number(image.unscaled()?, |bytes| write_base64(bytes, 0, out)),
            Decimals::Double => {
                let mut text = Vec::with_capacity(68);
                image.write_text(&mut text)?;
                write_double(decimal::nearest_double(&text)?, out);
            }
            Decimals::String => {
                out.push(b'"');
                image.write_text(out)?;
                out.push(b'"');
            }
        }
        Ok(())
    }

    fn numeric(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) -> Taken {
        match self.options.decimal_handling_mode {
            Decimals::Precise => {
                let (scale, bytes) = unscaled::with_scale(text)?;
                out.extend_from_slice(b"{\"scale\":");
                write_u64(scale as u64, out);
                out.extend_from_slice(b",\"value\":");
                write_base64(&bytes, 0, out);
                out.push(b'}');
            }
            Decimals::Double => write_double(unscaled::double(text)?, out),
            Decimals::String => write_utf8(unscaled::shown(text)?, out),
        }
        Ok(())
    }

    fn binary(&self, _: &Column, value: &[u8], zeros: usize, out: &mut Vec<u8>) {
        self.bytes(value, zeros, out);
    }

    fn geometry(&self, column: &Column, value: &[u8], out: &mut Vec<u8>) -> Taken {
        let (srid, wkb) = geometry::split(value)?;
        out.push(b'{');
        if column.is_point {
            let (x, y) = geometry::point(wkb).ok_or_else(|| ValueError::new("a point that is no point"))?;
            out.extend_from_slice(b"\"x\":");
            write_double(x, out);
            out.extend_from_slice(b",\"y\":");
            write_double(y, out);
            out.push(b',');
        }
        out.extend_from_slice(b"\"wkb\":");
        write_base64(wkb, 0, out);
        out.extend_from_slice(b",\"srid\":");
        match srid {
            0 => out.extend_from_slice(b"null"),
            srid => write_u64(srid.into(), out),
        }
        out.push(b'}');
        Ok(())
    }

    fn vector(&self, _: &Column, value: &[u8], out: &mut Vec<u8>) {
        write_floats(value, out);
    }

    /// One bit is a boolean; more are bytes, the lowest first.
    fn bit(&self, column: &Column, value: u64, out: &mut Vec<u8>) {
        match column.kind {
            ColumnType::Bit { bits: 1 } => out.extend_from_slice(if value == 1 { b"true" } else { b"false" }),
            ColumnType::Bit { bits } => {
                write_base64(&value.to_le_bytes()[..usize::from(bits).div_ceil(8).min(8)], 0, out)
            }
            _ => write_u64(value, out),
        }
    }

    fn date(&self, column: &Column, value: Date, out: &mut Vec<u8>) -> Taken {
        let iso = self.options.time_precision_mode == TimePrecision::Isostring;
        match value.days() {
            Some(_) if iso => {
                out.push(b'"');
                value.write_text(out);
                out.extend_from_slice(b"Z\"");
            }
            Some(days) => write_i64(days.into(), out),
            None => Self::no_date(column, if iso { b"\"1970-01-01Z\"" } else { b"0" }, out),
        }
        Ok(())
    }

    fn datetime(&self, column: &Column, value: DateTime, out: &mut Vec<u8>) -> Taken {
        use TimePrecision::{AdaptiveTimeMicroseconds, Connect, Isostring, Microseconds, Nanoseconds};
        let mode = self.options.time_precision_mode;
        let Some(micros) = value.micros_since_1970() else {
            let first: &[u8] = if mode == Isostring { b"\"1970-01-01T00:00:00Z\"" } else { b"0" };
            Self::no_date(column, first, out);
            return Ok(());
        };
        match mode {
            AdaptiveTimeMicroseconds if column.fsp <= 3 => write_i64(micros.div_euclid(1000), out),
            Connect => write_i64(micros.div_euclid(1000), out),
            AdaptiveTimeMicroseconds | Microseconds => write_i64(micros, out),
            Nanoseconds => write_nanos(micros, out),
            Isostring => Self::iso(value, column.fsp, out),
        }
        Ok(())
    }

    fn timestamp(&self, column: &Column, value: Instant, out: &mut Vec<u8>) -> Taken {
        if value == Instant::Zero {
            Self::no_date(column, b"\"1970-01-01T00:00:00Z\"", out);
        } else {
            Self::iso(value.datetime(), column.fsp, out);
        }
        Ok(())
    }

    fn time(&self, column: &Column, value: Time, out: &mut Vec<u8>) -> Taken {
        match self.options.time_precision_mode {
            TimePrecision::AdaptiveTimeMicroseconds | TimePrecision::Microseconds => {
                write_i64(value.micros(), out)
            }
            TimePrecision::Connect => write_i64(value.micros().div_euclid(1000), out),
            TimePrecision::Nanoseconds => write_nanos(value.micros(), out),
            TimePrecision::Isostring => {
                out.push(b'"');
                value.write_text(column.fsp, out);
                out.extend_from_slice(b"Z\"");
            }
        }
        Ok(())
    }

    fn json(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) {
        write_utf8(text, out);
    }
}

fn write_nanos(micros: i64, out: &mut Vec<u8>) {
    write_i64(micros, out);
    if micros != 0 {
        out.extend_from_slice(b"000");
    }
}
