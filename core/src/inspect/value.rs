//! One value of a row image as JSON.
//!
//! Nothing is invented that the log does not say: without labels an enum is its number, without signedness a
//! number is signed, and bytes of an unknown character set are text only if they are printable UTF-8.

use std::io::Write as _;

use crate::charset::Charset;
use crate::column::encode;
use crate::decimal::DecimalImage;
use crate::double::write_double;
use crate::encode::json_numbers::show_double;
use crate::error::ValueError;
use crate::json::Style;
use crate::list::write_text;
use crate::rows::{RowSink, Taken, ValueSink};
use crate::table_map::{MapColumn, TableMap};
use crate::temporal::{Date, DateTime, Instant, Time};
use crate::wire::WireType;

const BINARY: u16 = 63;

/// A row image as a JSON object; columns that the image does not have are left out.
pub struct JsonRow<'a> {
    map: &'a TableMap,
    /// `"name":` of each column, escaped.
    names: &'a [Vec<u8>],
    index: usize,
    style: Style,
    /// Where the value of the present column begins.
    start: usize,
    /// JSON columns that have only changes of their documents. They are left out.
    pub unknown: Vec<usize>,
    out: Vec<u8>,
}

impl<'a> JsonRow<'a> {
    pub fn new(map: &'a TableMap, names: &'a [Vec<u8>], style: Style) -> Self {
        Self { map, names, index: 0, style, start: 1, unknown: Vec::new(), out: vec![b'{'] }
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }

    fn current(&self) -> &'a MapColumn {
        &self.map.columns[self.index]
    }

    fn quoted(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Taken {
        self.out.push(b'"');
        write(&mut self.out);
        self.out.push(b'"');
        Ok(())
    }
}

impl RowSink for JsonRow<'_> {
    type Column = Self;

    fn column(&mut self, index: usize) -> Option<&mut Self> {
        self.start = self.out.len();
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        self.out.extend_from_slice(&self.names[index]);
        self.index = index;
        Some(self)
    }

    fn absent(&mut self, _: usize) -> Taken {
        Ok(())
    }
}

impl ValueSink for JsonRow<'_> {
    fn null(&mut self) -> Taken {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn boolean(&mut self, value: bool) -> Taken {
        show(value, &mut self.out);
        Ok(())
    }

    fn int(&mut self, value: i64) -> Taken {
        show(value, &mut self.out);
        Ok(())
    }

    fn uint(&mut self, value: u64) -> Taken {
        show(value, &mut self.out);
        Ok(())
    }

    fn float(&mut self, value: f32) -> Taken {
        if !value.is_finite() {
            return self.double(value.into());
        }
        show(ryu::Buffer::new().format_finite(value), &mut self.out);
        Ok(())
    }

    fn double(&mut self, value: f64) -> Taken {
        // JSON has no infinities: they are texts, as in messages.
        if !value.is_finite() {
            return self.quoted(|out| show_double(value, out));
        }
        write_double(value, &mut self.out);
        Ok(())
    }

    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken {
        self.out.push(b'"');
        image.write_text(&mut self.out)?;
        self.out.push(b'"');
        Ok(())
    }

    fn bytes(&mut self, value: &[u8]) -> Taken {
        match self.current().wire.usual() {
            WireType::Char { length } => write_string(self.current(), value, length.into(), &mut self.out),
            WireType::Varchar { .. } | WireType::Blob { .. } | WireType::Compressed { .. } => {
                write_string(self.current(), value, 0, &mut self.out)
            }
            _ => write_base64(value, &mut self.out),
        }
        Ok(())
    }

    fn bit(&mut self, value: u64) -> Taken {
        self.uint(value)
    }

    fn year(&mut self, value: u16) -> Taken {
        self.uint(value.into())
    }

    fn date(&mut self, value: Date) -> Taken {
        self.quoted(|out| value.write_text(out))
    }

    fn datetime(&mut self, value: DateTime) -> Taken {
        let fsp = fractional_digits(self.current().wire);
        self.quoted(|out| value.write_text(fsp, out))
    }

    fn timestamp(&mut self, value: Instant) -> Taken {
        self.datetime(value.datetime())
    }

    fn time(&mut self, value: Time) -> Taken {
        let fsp = fractional_digits(self.current().wire);
        self.quoted(|out| value.write_text(fsp, out))
    }

    fn label(&mut self, value: u64) -> Taken {
        match self.current().wire {
            WireType::Set { .. } => write_set(self.current(), value, &mut self.out),
            _ => write_enum(self.current(), value, &mut self.out),
        }
        Ok(())
    }

    /// The text of a JSON column is written as a string, so that it stays what the server prints, digit for
    /// digit.
    fn json(&mut self, document: &[u8]) -> Taken {
        let mut text = Vec::new();
        crate::json::write_text_as(self.style, document, &mut text)?;
        write_utf8(&text, &mut self.out);
        Ok::<(), ValueError>(())
    }

    fn json_text(&mut self, text: &[u8]) -> Taken {
        write_utf8(text, &mut self.out);
        Ok(())
    }

    fn list(&mut self, value: &[u8]) -> Taken {
        match &self.current().element {
            Some(element) => write_text(element, value, &mut self.out),
            None => Err(ValueError::new("a list of unknown elements")),
        }
    }

    fn extreme(&mut self, text: &[u8]) -> Taken {
        self.quoted(|out| out.extend_from_slice(text))
    }

    fn json_changed(&mut self, document: Option<&[u8]>, changes: &[u8]) -> Taken {
        let Some(document) = document else {
            self.out.truncate(self.start);
            self.unknown.push(self.index);
            return Ok(());
        };
        let mut text = Vec::new();
        crate::json::write_changed(document, changes, &mut text)?;
        write_utf8(&text, &mut self.out);
        Ok(())
    }
}

fn fractional_digits(wire: WireType) -> u8 {
    match wire.usual() {
        WireType::Time { fsp } | WireType::DateTime { fsp } | WireType::Timestamp { fsp } => fsp,
        WireType::Instant => 6,
        mut old => old.old_fraction().copied().flatten().unwrap_or(0),
    }
}

fn show(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    // Writing into a Vec cannot fail.
    let _ = write!(out, "{value}");
}

pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, text);
}

fn write_utf8(bytes: &[u8], out: &mut Vec<u8>) {
    write_json_string(&String::from_utf8_lossy(bytes), out);
}

fn write_string(column: &MapColumn, bytes: &[u8], padded: usize, out: &mut Vec<u8>) {
    match column.collation {
        // The log has BINARY(n) without the zero bytes at its end.
        Some(BINARY) if bytes.len() < padded => {
            let mut whole = bytes.to_vec();
            whole.resize(padded, 0);
            write_base64(&whole, out);
        }
        Some(BINARY) => write_base64(bytes, out),
        Some(collation) => write_utf8(&text(collation, bytes), out),
        None if printable(bytes) => write_utf8(bytes, out),
        None => write_base64(bytes, out),
    }
}

fn text(collation: u16, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    Charset::from_collation(collation).unwrap_or(Charset::Utf8).append(bytes, &mut text);
    text
}

fn printable(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| text.chars().all(|char| !char.is_control() || matches!(char, '\t' | '\n' | '\r')))
}

fn label(column: &MapColumn, index: usize) -> Option<Vec<u8>> {
    let bytes = column.labels.as_ref()?.get(index)?;
    Some(match column.collation {
        Some(collation) => text(collation, bytes),
        None => bytes.to_vec(),
    })
}

fn write_enum(column: &MapColumn, number: u64, out: &mut Vec<u8>) {
    match (number, &column.labels) {
        // What the server stores for a value it could not take.
        (0, Some(_)) => out.extend_from_slice(b"\"\""),
        _ => match label(column, (number as usize).wrapping_sub(1)) {
            Some(label) => write_utf8(&label, out),
            None => show(number, out),
        },
    }
}

fn write_set(column: &MapColumn, bits: u64, out: &mut Vec<u8>) {
    let known = column.labels.as_ref().map_or(0, Vec::len);
    if column.labels.is_none() || (known < 64 && bits >> known != 0) {
        return show(bits, out);
    }
    let labels = (0..known).filter(|index| bits >> index & 1 == 1).filter_map(|index| label(column, index));
    let mut text = Vec::new();
    for label in labels {
        // As the server does: there is no comma behind an empty label at the beginning.
        if !text.is_empty() {
            text.push(b',');
        }
        text.extend(label);
    }
    write_utf8(&text, out);
}

pub fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    encode::write_base64(bytes, 0, out);
    out.push(b'"');
}
