//! Values of a row image as SQL literals. A server that reads such a literal gets the value that it wrote.
//!
//! Bytes of any kind are written as hexadecimal digits, addresses and UUIDs as text, labels as numbers, a
//! FLOAT as the DOUBLE of equal value. The session that reads them must have the time zone `+00:00`, and an
//! sql_mode of ALLOW_INVALID_DATES only.

use std::io::Write as _;

use crate::decimal::DecimalImage;
use crate::error::{DecodeError, Result, ValueError};
use crate::network::Network;
use crate::rows::{missing_column, RowSink, Taken, ValueSink};
use crate::schema::{ColumnType, TableSchema};
use crate::temporal::{Date, DateTime, Instant, Time};

/// The literals of some columns of a row.
pub struct Literals {
    /// The place in `columns`, by the column's position in the table.
    places: Vec<Option<usize>>,
    columns: Vec<Literal>,
}

impl Literals {
    pub fn new(table: &TableSchema, names: &[String]) -> Result<Self> {
        let mut literals = Self { places: vec![None; table.columns.len()], columns: Vec::new() };
        for name in names {
            let Some(position) = table.position(name) else {
                return Err(DecodeError::of_table(table.name(), format!("there is no column `{name}`"), 0));
            };
            literals.places[position] = Some(literals.columns.len());
            let column = &table.columns[position];
            let network = match column.column_type() {
                Ok(ColumnType::Network(network)) => Some(network),
                _ => None,
            };
            literals.columns.push(Literal { fsp: column.fsp.unwrap_or(0), network, text: Vec::new() });
        }
        Ok(literals)
    }

    /// The literals of the row that was walked, in the order of the names, with commas between them.
    pub fn take(&mut self) -> String {
        let texts: Vec<Vec<u8>> =
            self.columns.iter_mut().map(|column| std::mem::take(&mut column.text)).collect();
        String::from_utf8_lossy(&texts.join(&b',')).into_owned()
    }
}

impl RowSink for Literals {
    type Column = Literal;

    fn column(&mut self, index: usize) -> Option<&mut Literal> {
        let place = self.places.get(index).copied().flatten()?;
        self.columns.get_mut(place)
    }

    fn absent(&mut self, index: usize) -> Taken {
        match self.column(index) {
            Some(_) => Err(missing_column()),
            None => Ok(()),
        }
    }
}

pub struct Literal {
    fsp: u8,
    /// Types for which the log has other bytes than the server accepts in a literal.
    network: Option<Network>,
    text: Vec<u8>,
}

impl Literal {
    fn show(&mut self, value: impl std::fmt::Display) -> Taken {
        // Writing into a Vec cannot fail.
        let _ = write!(self.text, "{value}");
        Ok(())
    }

    fn quoted(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Taken {
        self.text.push(b'\'');
        write(&mut self.text);
        self.text.push(b'\'');
        Ok(())
    }
}

impl ValueSink for Literal {
    fn null(&mut self) -> Taken {
        self.show("NULL")
    }

    fn boolean(&mut self, value: bool) -> Taken {
        self.show(u8::from(value))
    }

    fn int(&mut self, value: i64) -> Taken {
        self.show(value)
    }

    fn uint(&mut self, value: u64) -> Taken {
        self.show(value)
    }

    fn float(&mut self, value: f32) -> Taken {
        self.double(value.into())
    }

    fn double(&mut self, value: f64) -> Taken {
        if !value.is_finite() {
            return Err(ValueError::new("a number that is not finite"));
        }
        self.show(format_args!("{value:e}"))
    }

    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken {
        image.write_text(&mut self.text)
    }

    fn bytes(&mut self, value: &[u8]) -> Taken {
        if let Some(network) = self.network {
            let mut text = Vec::new();
            network.write_text(value, &mut text)?;
            return self.quoted(|out| out.extend(text));
        }
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        self.text.extend_from_slice(b"X'");
        for byte in value {
            self.text.push(DIGITS[usize::from(byte >> 4)]);
            self.text.push(DIGITS[usize::from(byte & 15)]);
        }
        self.text.push(b'\'');
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
        let fsp = self.fsp;
        self.quoted(|out| value.write_text(fsp, out))
    }

    fn timestamp(&mut self, value: Instant) -> Taken {
        self.datetime(value.datetime())
    }

    fn time(&mut self, value: Time) -> Taken {
        let fsp = self.fsp;
        self.quoted(|out| value.write_text(fsp, out))
    }

    fn label(&mut self, value: u64) -> Taken {
        self.show(value)
    }

    /// Fails: only MySQL has such documents, and its images have their generated columns.
    fn json(&mut self, _: &[u8]) -> Taken {
        Err(ValueError::new("a JSON document of MySQL has no literal"))
    }

    fn json_text(&mut self, _: &[u8]) -> Taken {
        Err(ValueError::new("a JSON document has no literal"))
    }

    fn list(&mut self, _: &[u8]) -> Taken {
        Err(ValueError::new("a list has no literal"))
    }

    fn json_changed(&mut self, _: Option<&[u8]>, changes: &[u8]) -> Taken {
        self.json(changes)
    }
}
