//! Values of row images as JSON.
//!
//! A `Form` says how a format writes each type; the methods it does not have are those of plain JSON. All
//! forms write text: the value, or `null`.

use super::columns::{Column, Table};
use super::image::{Image, Place};
use super::json_numbers::{write_double, write_float, write_floats};
use super::json_text::{write_base64, write_string, write_utf8};
use crate::decimal::DecimalImage;
use crate::digits::{write_i64, write_u64};
use crate::error::{Result, ValueError};
use crate::json::{self, Shapes, Style};
use crate::list::{write_text as write_list, List};
use crate::rows::{missing_column, Taken, ValueSink};
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Instant, Time};

/// What values need beside their column.
#[derive(Default)]
pub struct Tools {
    pub style: Style,
    pub(super) shapes: Shapes,
    pub(super) scratch: Vec<u8>,
}

pub trait Form {
    fn boolean(&self, _: &Column, value: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn int(&self, _: &Column, value: i64, out: &mut Vec<u8>) {
        write_i64(value, out);
    }

    fn uint(&self, _: &Column, value: u64, out: &mut Vec<u8>) {
        write_u64(value, out);
    }

    fn float(&self, _: &Column, value: f32, out: &mut Vec<u8>) {
        write_float(value, out);
    }

    fn double(&self, _: &Column, value: f64, out: &mut Vec<u8>) {
        write_double(value, out);
    }

    fn decimal(&self, _: &Column, image: DecimalImage<'_>, out: &mut Vec<u8>) -> Taken {
        out.push(b'"');
        image.write_text(out)?;
        out.push(b'"');
        Ok(())
    }

    /// See `ValueSink::extreme`.
    fn extreme(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) -> Taken {
        write_utf8(text, out);
        Ok(())
    }

    /// A number without a declared precision.
    fn numeric(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) -> Taken {
        write_utf8(text, out);
        Ok(())
    }

    /// BINARY, VARBINARY and BLOB, and `zeros` zero bytes behind them.
    fn binary(&self, _: &Column, value: &[u8], zeros: usize, out: &mut Vec<u8>) {
        write_base64(value, zeros, out);
    }

    /// SRID, then WKB.
    fn geometry(&self, _: &Column, value: &[u8], out: &mut Vec<u8>) -> Taken {
        write_base64(value, 0, out);
        Ok(())
    }

    fn vector(&self, _: &Column, value: &[u8], out: &mut Vec<u8>) {
        write_floats(value, out);
    }

    fn bit(&self, _: &Column, value: u64, out: &mut Vec<u8>) {
        write_u64(value, out);
    }

    fn year(&self, _: &Column, value: u16, out: &mut Vec<u8>) {
        write_u64(value.into(), out);
    }

    fn date(&self, _: &Column, value: Date, out: &mut Vec<u8>) -> Taken {
        quoted(out, |out| value.write_text(out));
        Ok(())
    }

    fn datetime(&self, column: &Column, value: DateTime, out: &mut Vec<u8>) -> Taken {
        quoted(out, |out| value.write_text(column.fsp, out));
        Ok(())
    }

    fn timestamp(&self, column: &Column, value: Instant, out: &mut Vec<u8>) -> Taken {
        quoted(out, |out| value.datetime().write_text(column.fsp, out));
        Ok(())
    }

    fn time(&self, column: &Column, value: Time, out: &mut Vec<u8>) -> Taken {
        quoted(out, |out| value.write_text(column.fsp, out));
        Ok(())
    }

    fn enumeration(&self, column: &Column, ordinal: u64, out: &mut Vec<u8>) -> Taken {
        write_label(column, ordinal, out)
    }

    fn set(&self, column: &Column, bits: u64, out: &mut Vec<u8>) -> Taken {
        write_set(column, bits, out)
    }

    fn json(&self, _: &Column, text: &[u8], out: &mut Vec<u8>) {
        write_utf8(text, out);
    }

    /// Whether lists are arrays of JSON. If not, they are strings with that text.
    const LISTS: bool = true;
    /// Whether arrays that are no lists can stand in messages.
    const DOCUMENTS: bool = true;

    /// A document that is not MySQL's: its text may be of several lines, or no JSON at all.
    fn json_text(&self, column: &Column, text: &[u8], out: &mut Vec<u8>) {
        self.json(column, text, out);
    }
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

pub fn write_label(column: &Column, ordinal: u64, out: &mut Vec<u8>) -> Taken {
    let Some(index) = ordinal.checked_sub(1) else {
        // What the server stores for a value that it could not take.
        out.extend_from_slice(b"\"\"");
        return Ok(());
    };
    let label = usize::try_from(index).ok().and_then(|index| column.labels.get(index));
    out.extend_from_slice(label.ok_or_else(|| unknown_label(ordinal))?);
    Ok(())
}

/// Labels joined by commas, as SELECT shows them.
pub fn write_set(column: &Column, bits: u64, out: &mut Vec<u8>) -> Taken {
    out.push(b'"');
    let start = out.len();
    each_label(column, bits, |_, label| {
        // As the server does: there is no comma behind an empty label at the beginning.
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(label.get(1..label.len() - 1).unwrap_or_default());
    })?;
    out.push(b'"');
    Ok(())
}

/// The labels as JSON strings.
pub fn each_label(column: &Column, bits: u64, mut take: impl FnMut(usize, &[u8])) -> Taken {
    let (mut left, mut count) = (bits, 0);
    while left != 0 {
        let label = column.labels.get(left.trailing_zeros() as usize);
        take(count, label.ok_or_else(|| unknown_label(bits))?);
        count += 1;
        left &= left - 1;
    }
    Ok(())
}

#[cold]
pub fn unknown_label(value: u64) -> ValueError {
    ValueError::new(format!("label number or bits {value}, which the definition does not have"))
}

#[cold]
pub fn unfit(form: &str, column: &Column) -> ValueError {
    ValueError::new(format!("{form} in a column of type {}", column.schema.kind))
}

/// Writes one value. It lives as long as the value.
struct Value<'a, F: Form> {
    form: &'a F,
    column: &'a Column,
    tools: &'a mut Tools,
    out: &'a mut Vec<u8>,
}

impl<F: Form> ValueSink for Value<'_, F> {
    #[inline]
    fn null(&mut self) -> Taken {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn boolean(&mut self, value: bool) -> Taken {
        self.form.boolean(self.column, value, self.out);
        Ok(())
    }

    #[inline]
    fn int(&mut self, value: i64) -> Taken {
        self.form.int(self.column, value, self.out);
        Ok(())
    }

    #[inline]
    fn uint(&mut self, value: u64) -> Taken {
        self.form.uint(self.column, value, self.out);
        Ok(())
    }

    #[inline]
    fn float(&mut self, value: f32) -> Taken {
        self.form.float(self.column, value, self.out);
        Ok(())
    }

    #[inline]
    fn double(&mut self, value: f64) -> Taken {
        self.form.double(self.column, value, self.out);
        Ok(())
    }

    fn extreme(&mut self, text: &[u8]) -> Taken {
        self.form.extreme(self.column, text, self.out)
    }

    #[inline]
    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken {
        self.form.decimal(self.column, image, self.out)
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Taken {
        match &self.column.kind {
            ColumnType::Text { charset, trimmed } => write_string(*charset, *trimmed, value, self.out),
            ColumnType::Binary { padded } => {
                let zeros = padded.map_or(0, |length| (length as usize).saturating_sub(value.len()));
                self.form.binary(self.column, value, zeros, self.out);
            }
            ColumnType::Geometry => self.form.geometry(self.column, value, self.out)?,
            ColumnType::Vector => self.form.vector(self.column, value, self.out),
            ColumnType::Network(network) => {
                self.out.push(b'"');
                network.write_text(value, self.out)?;
                self.out.push(b'"');
            }
            ColumnType::Numeric => self.form.numeric(self.column, value, self.out)?,
            ColumnType::Interval => write_utf8(value, self.out),
            _ => return Err(unfit("bytes", self.column)),
        }
        Ok(())
    }

    #[inline]
    fn bit(&mut self, value: u64) -> Taken {
        self.form.bit(self.column, value, self.out);
        Ok(())
    }

    #[inline]
    fn year(&mut self, value: u16) -> Taken {
        self.form.year(self.column, value, self.out);
        Ok(())
    }

    #[inline]
    fn date(&mut self, value: Date) -> Taken {
        self.form.date(self.column, value, self.out)
    }

    #[inline]
    fn datetime(&mut self, value: DateTime) -> Taken {
        self.form.datetime(self.column, value, self.out)
    }

    #[inline]
    fn timestamp(&mut self, value: Instant) -> Taken {
        self.form.timestamp(self.column, value, self.out)
    }

    #[inline]
    fn time(&mut self, value: Time) -> Taken {
        self.form.time(self.column, value, self.out)
    }

    #[inline]
    fn label(&mut self, value: u64) -> Taken {
        match self.column.kind {
            ColumnType::Set { .. } => self.form.set(self.column, value, self.out),
            _ => self.form.enumeration(self.column, value, self.out),
        }
    }

    #[inline]
    fn json(&mut self, document: &[u8]) -> Taken {
        let Tools { style, shapes, scratch } = &mut *self.tools;
        scratch.clear();
        json::write_text_with(shapes, *style, document, scratch)?;
        self.form.json(self.column, scratch, self.out);
        Ok(())
    }

    fn json_text(&mut self, text: &[u8]) -> Taken {
        self.form.json_text(self.column, text, self.out);
        Ok(())
    }

    #[cold]
    fn list(&mut self, value: &[u8]) -> Taken {
        let (ColumnType::List(kind), Some(element)) = (&self.column.kind, &self.column.element) else {
            return Err(unfit("a list", self.column));
        };
        if !F::LISTS {
            self.tools.scratch.clear();
            write_list(kind, value, &mut self.tools.scratch)?;
            write_utf8(&self.tools.scratch, self.out);
            return Ok(());
        }
        let elements = match List::parse(value)? {
            List::Document(document) if F::DOCUMENTS => {
                // Line breaks are only between the parts of a document, and a message may be a line.
                let one_line =
                    document.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte });
                self.out.extend(one_line);
                return Ok(());
            }
            _ => List::elements(value)?,
        };
        self.out.push(b'[');
        let Self { form, tools, out, .. } = self;
        let mut to = Value { form: *form, column: element, tools, out };
        elements.send(kind, &mut to, |to, index| {
            if index > 0 {
                to.out.push(b',');
            }
        })?;
        self.out.push(b']');
        Ok(())
    }

    fn json_changed(&mut self, document: Option<&[u8]>, changes: &[u8]) -> Taken {
        let document = document.ok_or_else(missing_column)?;
        self.tools.scratch.clear();
        json::write_changed(document, changes, &mut self.tools.scratch)?;
        self.form.json(self.column, &self.tools.scratch, self.out);
        Ok(())
    }
}

/// Appends one value as text. `Place::Absent` is an error.
#[inline(always)]
pub fn write_value<F: Form>(
    form: &F,
    table: &Table,
    index: usize,
    image: &Image<'_>,
    tools: &mut Tools,
    out: &mut Vec<u8>,
) -> Result<()> {
    let column = &table.columns[index];
    match image.place(index) {
        Place::Null => {
            out.extend_from_slice(b"null");
            Ok(())
        }
        _ => image.send(&table.map, index, &mut Value { form, column, tools, out }),
    }
}

/// Appends `"name":value` for all columns that the image has, with commas between them.
#[inline]
pub fn write_fields<F: Form>(
    form: &F,
    table: &Table,
    image: &Image<'_>,
    tools: &mut Tools,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut separator = false;
    for (index, column) in table.columns.iter().enumerate() {
        if image.place(index) == Place::Absent {
            continue;
        }
        if separator {
            out.push(b',');
        }
        separator = true;
        out.extend_from_slice(&column.head);
        write_value(form, table, index, image, tools, out)?;
    }
    Ok(())
}

/// Appends `"name":value` for the columns that an update changed, as they were before it, with commas between
/// them. Returns whether there are any. Of a column that one image lacks nobody knows whether it changed.
pub fn write_old<F: Form>(
    form: &F,
    table: &Table,
    (before, after): (&Image<'_>, &Image<'_>),
    tools: &mut Tools,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let start = out.len();
    for (index, column) in table.columns.iter().enumerate() {
        let (old, new) = (before.place(index), after.place(index));
        if old == Place::Absent || new == Place::Absent || before.same(after, index) {
            continue;
        }
        let begin = out.len();
        if begin > start {
            out.push(b',');
        }
        out.extend_from_slice(&column.head);
        let from = out.len();
        write_value(form, table, index, before, tools, out)?;
        if matches!(column.kind, ColumnType::Json) {
            // One document can have many forms in the log.
            let middle = out.len();
            write_value(form, table, index, after, tools, out)?;
            let same = out[from..middle] == out[middle..];
            out.truncate(if same { begin } else { middle });
        }
    }
    Ok(out.len() > start)
}
