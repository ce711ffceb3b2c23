//! Lists as JSON documents. Numbers are numbers, booleans true or false, and documents themselves; all else
//! is a string, as SELECT prints it. Bytes are base64.

use super::List;
use crate::decimal::DecimalImage;
use crate::encode::json_numbers::{write_double, write_float, write_floats, write_numeric};
use crate::encode::json_text::{write_base64, write_utf8};
use crate::error::ValueError;
use crate::json;
use crate::rows::{Taken, ValueSink};
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Instant, Time};

/// Appends the text of a list, whose elements are of this type. `value`: without the length before it.
#[cold]
pub fn write_text(element: &ColumnType, value: &[u8], out: &mut Vec<u8>) -> Taken {
    let elements = match List::parse(value)? {
        List::Elements(elements) => elements,
        List::Document(document) => {
            out.extend_from_slice(document);
            return Ok(());
        }
    };
    out.push(b'[');
    elements.send(element, &mut Text { kind: element, out }, |text, index| {
        if index > 0 {
            text.out.push(b',');
        }
    })?;
    out.push(b']');
    Ok(())
}

/// Writes elements.
struct Text<'a> {
    kind: &'a ColumnType,
    out: &'a mut Vec<u8>,
}

impl Text<'_> {
    fn quoted(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Taken {
        self.out.push(b'"');
        write(self.out);
        self.out.push(b'"');
        Ok(())
    }

    fn show(&mut self, value: impl std::fmt::Display) -> Taken {
        self.out.extend_from_slice(value.to_string().as_bytes());
        Ok(())
    }

    fn unfit(&self) -> ValueError {
        ValueError::new(format!("a list of elements of type {:?}", self.kind))
    }
}

impl ValueSink for Text<'_> {
    fn null(&mut self) -> Taken {
        self.show("null")
    }

    fn boolean(&mut self, value: bool) -> Taken {
        self.show(value)
    }

    fn int(&mut self, value: i64) -> Taken {
        self.show(value)
    }

    fn uint(&mut self, value: u64) -> Taken {
        self.show(value)
    }

    fn float(&mut self, value: f32) -> Taken {
        write_float(value, self.out);
        Ok(())
    }

    fn double(&mut self, value: f64) -> Taken {
        write_double(value, self.out);
        Ok(())
    }

    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken {
        image.write_text(self.out)
    }

    fn bytes(&mut self, value: &[u8]) -> Taken {
        match self.kind {
            ColumnType::Text { .. } | ColumnType::Interval => write_utf8(value, self.out),
            ColumnType::Numeric => write_numeric(value, self.out)?,
            ColumnType::Network(network) => {
                self.out.push(b'"');
                network.write_text(value, self.out)?;
                self.out.push(b'"');
            }
            ColumnType::Vector => write_floats(value, self.out),
            _ => write_base64(value, 0, self.out),
        }
        Ok(())
    }

    fn bit(&mut self, value: u64) -> Taken {
        self.show(value)
    }

    fn year(&mut self, value: u16) -> Taken {
        self.show(value)
    }

    fn date(&mut self, value: Date) -> Taken {
        self.quoted(|out| value.write_text(out))
    }

    fn datetime(&mut self, value: DateTime) -> Taken {
        let fsp = match self.kind {
            ColumnType::DateTime { fsp } | ColumnType::Timestamp { fsp } => *fsp,
            _ => return Err(self.unfit()),
        };
        self.quoted(|out| value.write_text(fsp, out))
    }

    fn timestamp(&mut self, value: Instant) -> Taken {
        self.datetime(value.datetime())
    }

    fn time(&mut self, value: Time) -> Taken {
        let ColumnType::Time { fsp } = *self.kind else { return Err(self.unfit()) };
        self.quoted(|out| value.write_text(fsp, out))
    }

    fn label(&mut self, _: u64) -> Taken {
        Err(self.unfit())
    }

    fn json(&mut self, document: &[u8]) -> Taken {
        json::write_text_as(json::Style::default(), document, self.out)
    }

    /// What is no JSON is a string.
    fn json_text(&mut self, text: &[u8]) -> Taken {
        match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
            Ok(_) => self.out.extend_from_slice(text),
            Err(_) => write_utf8(text, self.out),
        }
        Ok(())
    }

    fn list(&mut self, _: &[u8]) -> Taken {
        Err(self.unfit())
    }

    fn json_changed(&mut self, _: Option<&[u8]>, _: &[u8]) -> Taken {
        Err(self.unfit())
    }
}
