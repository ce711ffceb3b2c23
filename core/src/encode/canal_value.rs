//! Values as texts of Canal's entries.

use super::canal::sql_type;
use super::columns::{Column, Table};
use super::image::{Image, Place};
use super::json_form::{unfit, unknown_label, Tools};
use super::json_numbers::{show_double, show_float};
use crate::charset::Charset;
use crate::decimal::DecimalImage;
use crate::digits::{write_i64, write_u64};
use crate::error::Result;
use crate::json;
use crate::list::write_text as write_list;
use crate::rows::{missing_column, Taken, ValueSink};
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Instant, Time};

/// Codes of `java.sql.Types`.
const SMALLINT: i32 = 5;
const INTEGER: i32 = 4;
const BIGINT: i32 = -5;
const DECIMAL: i32 = 3;

/// Writes one value as text. It lives as long as the value.
struct Text<'a> {
    column: &'a Column,
    faithful: bool,
    tools: &'a mut Tools,
    out: &'a mut Vec<u8>,
    sql_type: i32,
}

/// Bytes as characters of ISO 8859-1, from which a consumer gets the same bytes.
fn write_latin1(value: &[u8], zeros: usize, out: &mut Vec<u8>) {
    let mut end = out.len();
    out.resize(end + 2 * value.len(), 0);
    for byte in value {
        let is_high = byte >> 7;
        out[end] = if is_high == 1 { 0xc0 | byte >> 6 } else { *byte };
        out[end + usize::from(is_high)] = if is_high == 1 { 0x80 | byte & 0x3f } else { *byte };
        end += 1 + usize::from(is_high);
    }
    out.truncate(end);
    out.resize(end + zeros, 0);
}

impl ValueSink for Text<'_> {
    fn null(&mut self) -> Taken {
        Ok(())
    }

    fn boolean(&mut self, value: bool) -> Taken {
        self.out.push(if value { b'1' } else { b'0' });
        Ok(())
    }

    #[inline]
    fn int(&mut self, value: i64) -> Taken {
        write_i64(value, self.out);
        Ok(())
    }

    /// Canal's type of a number that is negative without its sign is the next larger one.
    #[inline]
    fn uint(&mut self, value: u64) -> Taken {
        if let ColumnType::Integer { width, .. } = self.column.kind {
            if value >> (8 * u32::from(width) - 1) != 0 {
                self.sql_type = match width {
                    1 => SMALLINT,
                    2 | 3 => INTEGER,
                    4 => BIGINT,
                    _ => DECIMAL,
                };
            }
        }
        write_u64(value, self.out);
        Ok(())
    }

    fn float(&mut self, value: f32) -> Taken {
        show_float(value, self.out);
        Ok(())
    }

    fn extreme(&mut self, text: &[u8]) -> Taken {
        self.out.extend_from_slice(text);
        Ok(())
    }

    fn double(&mut self, value: f64) -> Taken {
        show_double(value, self.out);
        Ok(())
    }

    #[inline]
    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken {
        image.write_text(self.out)
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Taken {
        match &self.column.kind {
            ColumnType::Text { charset, trimmed } => {
                let start = self.out.len();
                if *charset == Charset::Utf8 && simdutf8::basic::from_utf8(value).is_ok() {
                    self.out.extend_from_slice(value);
                } else {
                    charset.append(value, self.out);
                }
                if *trimmed {
                    let spaces = self.out[start..].iter().rev().take_while(|byte| **byte == b' ').count();
                    self.out.truncate(self.out.len() - spaces);
                }
            }
            ColumnType::Binary { padded } => {
                let zeros = padded.map_or(0, |length| (length as usize).saturating_sub(value.len()));
                write_latin1(value, zeros, self.out);
            }
            ColumnType::Geometry | ColumnType::Vector => write_latin1(value, 0, self.out),
            ColumnType::Network(network) => network.write_text(value, self.out)?,
            ColumnType::Numeric | ColumnType::Interval => self.out.extend_from_slice(value),
            _ => return Err(unfit("bytes", self.column)),
        }
        Ok(())
    }

    fn bit(&mut self, value: u64) -> Taken {
        write_u64(value, self.out);
        Ok(())
    }

    fn year(&mut self, value: u16) -> Taken {
        write_u64(value.into(), self.out);
        Ok(())
    }

    fn date(&mut self, value: Date) -> Taken {
        value.write_text(self.out);
        Ok(())
    }

    fn datetime(&mut self, value: DateTime) -> Taken {
        value.write_text(self.column.fsp, self.out);
        Ok(())
    }

    fn timestamp(&mut self, value: Instant) -> Taken {
        value.datetime().write_text(self.column.fsp, self.out);
        Ok(())
    }

    fn time(&mut self, value: Time) -> Taken {
        value.write_text(self.column.fsp, self.out);
        Ok(())
    }

    fn label(&mut self, value: u64) -> Taken {
        match &self.column.kind {
            _ if self.faithful => write_u64(value, self.out),
            ColumnType::Set { labels, .. } => {
                let mut left = value;
                let start = self.out.len();
                while left != 0 {
                    let label = labels.get(left.trailing_zeros() as usize);
                    // As the server does: there is no comma behind an empty label at the beginning.
                    if self.out.len() > start {
                        self.out.push(b',');
                    }
                    self.out.extend_from_slice(label.ok_or_else(|| unknown_label(value))?.as_bytes());
                    left &= left - 1;
                }
            }
            ColumnType::Enum { labels, .. } if value > 0 => {
                let label = labels.get(value as usize - 1).ok_or_else(|| unknown_label(value))?;
                self.out.extend_from_slice(label.as_bytes());
            }
            _ => {}
        }
        Ok(())
    }

    fn json(&mut self, document: &[u8]) -> Taken {
        json::write_text_with(&mut self.tools.shapes, self.tools.style, document, self.out)
    }

    fn json_text(&mut self, text: &[u8]) -> Taken {
        self.out.extend_from_slice(text);
        Ok(())
    }

    fn list(&mut self, value: &[u8]) -> Taken {
        match &self.column.kind {
            ColumnType::List(element) => write_list(element, value, self.out),
            _ => Err(unfit("a list", self.column)),
        }
    }

    fn json_changed(&mut self, document: Option<&[u8]>, changes: &[u8]) -> Taken {
        json::write_changed(document.ok_or_else(missing_column)?, changes, self.out)
    }
}

/// Appends the text of a value. Returns the code of its type; None: it is null.
pub fn write_text(
    table: &Table,
    index: usize,
    image: &Image<'_>,
    (faithful, tools): (bool, &mut Tools),
    out: &mut Vec<u8>,
) -> Result<Option<i32>> {
    let column = &table.columns[index];
    let mut text = Text { column, faithful, tools, out, sql_type: sql_type(column, faithful) };
    if image.place(index) == Place::Null {
        return Ok(None);
    }
    image.send(&table.map, index, &mut text)?;
    Ok(Some(text.sql_type))
}
