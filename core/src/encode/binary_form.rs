//! Values of row images in Avro and Protobuf, as Debezium gives them to Connect's converters.

use std::marker::PhantomData;

use super::binary::{prefixed, write_bytes, write_tag, Target, LENGTH, VARINT};
use super::binary_field::Field;
use super::columns::{Column, Table};
use super::debezium_options::{BigintUnsigned, Binaries, Decimals, Options, TimePrecision};
use super::image::Image;
use super::json_form::{unfit, unknown_label, Tools};
use super::unscaled;
use crate::charset::{append_utf8, Charset};
use crate::column::encode::{write_base64, write_hex};
use crate::decimal::{self, DecimalImage};
use crate::error::{Result, ValueError};
use crate::json;
use crate::rows::{missing_column, Taken, ValueSink};
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Instant, Time};

/// Writes one value. It lives as long as the value.
pub(super) struct Value<'a, T> {
    pub(super) options: &'a Options,
    pub(super) column: &'a Column,
    pub(super) field: &'a Field,
    pub(super) tools: &'a mut Tools,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) target: PhantomData<T>,
}

impl<T: Target> Value<'_, T> {
    #[inline(always)]
    pub(super) fn start(&mut self) {
        match self.field.length {
            0 => {}
            1 => self.out.push(self.field.head[0]),
            length => self.out.extend_from_slice(&self.field.head[..usize::from(length)]),
        }
    }

    #[inline(always)]
    fn integer(&mut self, value: i64) {
        self.start();
        T::integer(value, self.out);
    }

    #[inline(always)]
    pub(super) fn slice(&mut self, value: &[u8]) {
        self.start();
        write_bytes::<T>(value, self.out);
    }

    /// What `write` appends, as a string or bytes.
    #[inline(always)]
    fn written(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Taken) -> Taken {
        self.start();
        prefixed::<T, _>(self.out, write)
    }

    pub(super) fn float64(&mut self, value: f64) {
        self.start();
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn write_null(&mut self) -> Taken {
        if !self.field.nullable {
            return Err(ValueError::new("a null, though the definition says NOT NULL"));
        }
        if !T::PROTOBUF {
            self.out.push(0);
        }
        Ok(())
    }

    fn unscaled(&mut self, bytes: &[u8], precision: u8, scale: u8) -> Taken {
        if !T::PROTOBUF {
            self.slice(bytes);
            return Ok(());
        }
        // confluent.type.Decimal
        self.written(|out| {
            write_tag(1, LENGTH, out);
            write_bytes::<T>(bytes, out);
            for (field, number) in [(2, precision), (3, scale)] {
                write_tag(field, VARINT, out);
                T::integer(number.into(), out);
            }
            Ok(())
        })
    }

    /// A date that the calendar does not have: null, or the first day in a column that must not be null.
    fn no_date(&mut self, first: &[u8]) -> Taken {
        if self.field.nullable {
            self.write_null()
        } else if self.options.time_precision_mode == TimePrecision::Isostring || !first.is_empty() {
            self.slice(first);
            Ok(())
        } else {
            self.integer(0);
            Ok(())
        }
    }

    fn iso(&mut self, value: DateTime, fsp: u8) -> Taken {
        self.written(|out| {
            let start = out.len();
            value.write_text(fsp, out);
            out[start + 10] = b'T';
            out.push(b'Z');
            Ok(())
        })
    }

    fn text(&mut self, charset: Charset, trimmed: bool, value: &[u8]) -> Taken {
        if charset == Charset::Utf8 {
            let spaces =
                if trimmed { value.iter().rev().take_while(|byte| **byte == b' ').count() } else { 0 };
            let value = &value[..value.len() - spaces];
            if simdutf8::basic::from_utf8(value).is_ok() {
                self.slice(value);
                return Ok(());
            }
            return self.written(|out| {
                append_utf8(value, out);
                Ok(())
            });
        }
        self.written(|out| {
            let start = out.len();
            charset.append(value, out);
            if trimmed {
                let spaces = out[start..].iter().rev().take_while(|byte| **byte == b' ').count();
                out.truncate(out.len() - spaces);
            }
            Ok(())
        })
    }

    fn binary(&mut self, value: &[u8], zeros: usize) -> Taken {
        match self.options.binary_handling_mode {
            Binaries::Bytes => {
                self.start();
                T::length(value.len() + zeros, self.out);
                self.out.extend_from_slice(value);
                self.out.resize(self.out.len() + zeros, 0);
                Ok(())
            }
            Binaries::Base64 => self.written(|out| {
                write_base64(value, zeros, out);
                Ok(())
            }),
            Binaries::Base64UrlSafe => self.written(|out| {
                let start = out.len();
                write_base64(value, zeros, out);
                for byte in &mut out[start..] {
                    *byte = match *byte {
                        b'+' => b'-',
                        b'/' => b'_',
                        other => other,
                    };
                }
                Ok(())
            }),
            Binaries::Hex => self.written(|out| {
                let start = out.len();
                write_hex(value, zeros, out);
                out[start..].make_ascii_lowercase();
                Ok(())
            }),
        }
    }

    fn vector(&mut self, value: &[u8]) {
        let floats = &value[..value.len() / 4 * 4];
        if T::PROTOBUF {
            return self.slice(floats);
        }
        self.start();
        if !floats.is_empty() {
            T::length(floats.len() / 4, self.out);
            self.out.extend_from_slice(floats);
        }
        T::length(0, self.out);
    }
}

impl<T: Target> ValueSink for Value<'_, T> {
    fn null(&mut self) -> Taken {
        self.write_null()
    }

    #[inline]
    fn int(&mut self, value: i64) -> Taken {
        self.integer(value);
        Ok(())
    }

    #[inline]
    fn uint(&mut self, value: u64) -> Taken {
        let precise = self.options.bigint_unsigned_handling_mode == BigintUnsigned::Precise;
        // A Decimal, whatever `decimal.handling.mode` says.
        if precise && matches!(self.column.kind, ColumnType::Integer { width: 8, .. }) {
            return unscaled::of_number(value.into(), |bytes| self.unscaled(bytes, 20, 0));
        }
        self.integer(i64::try_from(value).map_err(|_| too_large())?);
        Ok(())
    }

    #[inline]
    fn float(&mut self, value: f32) -> Taken {
        self.start();
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn double(&mut self, value: f64) -> Taken {
        self.float64(value);
        Ok(())
    }

    #[inline]
    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken {
        let ColumnType::Decimal { precision, scale } = self.column.kind else {
            return Err(unfit("a decimal", self.column));
        };
        match self.options.decimal_handling_mode {
            Decimals::Precise if precision <= 38 => {
                unscaled::of_number(image.unscaled()?, |bytes| self.unscaled(bytes, precision, scale))
            }
            Decimals::Precise => {
                let mut text = Vec::with_capacity(68);
                image.write_text(&mut text)?;
                self.unscaled(&unscaled::of_text(&text), precision, scale)
            }
            Decimals::Double => {
                let mut text = Vec::with_capacity(68);
                image.write_text(&mut text)?;
                self.float64(decimal::nearest_double(&text)?);
                Ok(())
            }
            Decimals::String => self.written(|out| image.write_text(out)),
        }
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Taken {
        match &self.column.kind {
            ColumnType::Text { charset, trimmed } => self.text(*charset, *trimmed, value),
            ColumnType::Binary { padded } => {
                let zeros = padded.map_or(0, |length| (length as usize).saturating_sub(value.len()));
                self.binary(value, zeros)
            }
            ColumnType::Geometry => self.geometry(value),
            ColumnType::Vector => {
                self.vector(value);
                Ok(())
            }
            ColumnType::Network(network) => self.written(|out| network.write_text(value, out)),
            ColumnType::Numeric => self.numeric(value),
            ColumnType::Interval => {
                self.slice(value);
                Ok(())
            }
            _ => Err(unfit("bytes", self.column)),
        }
    }

    fn boolean(&mut self, value: bool) -> Taken {
        self.start();
        self.out.push(u8::from(value));
        Ok(())
    }

    fn bit(&mut self, value: u64) -> Taken {
        match self.column.kind {
            ColumnType::Bit { bits: 1 } => {
                return self.boolean(value == 1);
            }
            ColumnType::Bit { bits } => {
                self.slice(&value.to_le_bytes()[..usize::from(bits).div_ceil(8).min(8)])
            }
            _ => return Err(unfit("bits", self.column)),
        }
        Ok(())
    }

    fn year(&mut self, value: u16) -> Taken {
        self.integer(value.into());
        Ok(())
    }

    fn date(&mut self, value: Date) -> Taken {
        let iso = self.options.time_precision_mode == TimePrecision::Isostring;
        match value.days() {
            Some(_) if iso => self.written(|out| {
                value.write_text(out);
                out.push(b'Z');
                Ok(())
            }),
            Some(days) => {
                self.integer(days.into());
                Ok(())
            }
            None => self.no_date(if iso { b"1970-01-01Z" } else { b"" }),
        }
    }

    #[inline]
    fn datetime(&mut self, value: DateTime) -> Taken {
        use TimePrecision::{AdaptiveTimeMicroseconds, Connect, Isostring, Microseconds, Nanoseconds};
        let mode = self.options.time_precision_mode;
        let Some(micros) = value.micros_since_1970() else {
            return self.no_date(if mode == Isostring { b"1970-01-01T00:00:00Z" } else { b"" });
        };
        match mode {
            AdaptiveTimeMicroseconds if self.column.fsp <= 3 => self.integer(micros.div_euclid(1000)),
            Connect => self.integer(micros.div_euclid(1000)),
            AdaptiveTimeMicroseconds | Microseconds => self.integer(micros),
            Nanoseconds => self.integer(micros.checked_mul(1000).ok_or_else(beyond_nanoseconds)?),
            Isostring => return self.iso(value, self.column.fsp),
        }
        Ok(())
    }

    #[inline]
    fn timestamp(&mut self, value: Instant) -> Taken {
        if value == Instant::Zero {
            return self.no_date(b"1970-01-01T00:00:00Z");
        }
        self.iso(value.datetime(), self.column.fsp)
    }

    fn time(&mut self, value: Time) -> Taken {
        let micros = value.micros();
        match self.options.time_precision_mode {
            TimePrecision::AdaptiveTimeMicroseconds | TimePrecision::Microseconds => self.integer(micros),
            TimePrecision::Connect => self.integer(micros.div_euclid(1000)),
            TimePrecision::Nanoseconds => self.integer(micros.saturating_mul(1000)),
            TimePrecision::Isostring => {
                let fsp = self.column.fsp;
                return self.written(|out| {
                    value.write_text(fsp, out);
                    out.push(b'Z');
                    Ok(())
                });
            }
        }
        Ok(())
    }

    fn label(&mut self, value: u64) -> Taken {
        match &self.column.kind {
            ColumnType::Enum { labels, .. } => match value {
                // What the server stores for a value that it could not take.
                0 => self.slice(b""),
                number => {
                    let label = labels.get(number as usize - 1).ok_or_else(|| unknown_label(number))?;
                    self.slice(label.as_bytes());
                }
            },
            ColumnType::Set { labels, .. } => {
                let mut left = value;
                return self.written(|out| {
                    let start = out.len();
                    while left != 0 {
                        let label = labels.get(left.trailing_zeros() as usize);
                        // As the server does: there is no comma behind an empty label at the beginning.
                        if out.len() > start {
                            out.push(b',');
                        }
                        out.extend_from_slice(label.ok_or_else(|| unknown_label(value))?.as_bytes());
                        left &= left - 1;
                    }
                    Ok(())
                });
            }
            _ => return Err(unfit("a label", self.column)),
        }
        Ok(())
    }

    fn json(&mut self, document: &[u8]) -> Taken {
        let Tools { style, shapes, scratch } = &mut *self.tools;
        scratch.clear();
        json::write_text_with(shapes, *style, document, scratch)?;
        self.start();
        write_bytes::<T>(&self.tools.scratch, self.out);
        Ok(())
    }

    fn json_text(&mut self, text: &[u8]) -> Taken {
        self.slice(text);
        Ok(())
    }

    #[cold]
    fn list(&mut self, value: &[u8]) -> Taken {
        self.elements(value)
    }

    fn json_changed(&mut self, document: Option<&[u8]>, changes: &[u8]) -> Taken {
        let document = document.ok_or_else(missing_column)?;
        self.tools.scratch.clear();
        json::write_changed(document, changes, &mut self.tools.scratch)?;
        self.start();
        write_bytes::<T>(&self.tools.scratch, self.out);
        Ok(())
    }
}

#[cold]
fn too_large() -> ValueError {
    ValueError::new("a number above 2^63 - 1; use bigint.unsigned.handling.mode = precise")
}

#[cold]
fn beyond_nanoseconds() -> ValueError {
    ValueError::new("a time that 64 bits of nanoseconds cannot hold; use another time.precision.mode")
}

/// Appends one value, and what is before it. `Place::Absent` is an error.
#[inline(always)]
pub fn write_value<T: Target>(
    options: &Options,
    (table, field): (&Table, &Field),
    index: usize,
    image: &Image<'_>,
    tools: &mut Tools,
    out: &mut Vec<u8>,
) -> Result<()> {
    let column = &table.columns[index];
    let mut value = Value::<T> { options, column, field, tools, out, target: PhantomData };
    image.send(&table.map, index, &mut value)
}
