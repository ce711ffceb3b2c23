//! Numbers without a declared precision, which come as text.

use super::append::Result;
use super::{ColumnBuilder, NotNumbers, Storage};
use crate::decimal::{self, Plain};
use crate::error::ValueError;

impl ColumnBuilder {
    /// Appends a number from its text: digits with an optional sign and point, `NaN`, `Infinity` or
    /// `-Infinity`.
    #[cold]
    pub(super) fn append_number(&mut self, text: &[u8]) -> Result {
        let number = Plain::parse(text)?;
        match (&mut self.storage, number) {
            (Storage::Text(_), _) => return self.push_bytes(text, 0),
            (Storage::Float64(values), Plain::NotNumber(value)) => values.push(value),
            (Storage::Float64(values), Plain::Digits(digits)) => {
                values.push(decimal::nearest_double(digits).map_err(|_| too_large("a DOUBLE"))?)
            }
            (Storage::Decimal(values, precision, scale), Plain::Digits(digits)) => {
                let (precision, scale) = (*precision, *scale as u8);
                let found = decimal::parse_text(decimal::without_zeros(digits), precision, scale);
                let fits = found.map_err(|_| too_large(&format!("DECIMAL({precision},{scale})")))?;
                values.push(fits)
            }
            (Storage::Decimal(..), Plain::NotNumber(_)) => match self.options.not_numbers {
                NotNumbers::Null => self.append_null(),
                NotNumbers::Error | NotNumbers::Text => return Err(ValueError::new(
                    "NaN or an infinity, which a DECIMAL cannot have; set `not_numbers` to `null`, or leave \
                         out `numeric_scale` to have the numbers as text",
                )),
            },
            _ => return Err(self.unfit("a number")),
        }
        Ok(())
    }
}

fn too_large(kind: &str) -> ValueError {
    ValueError::new(format!(
        "a number that does not fit into {kind}; choose another `numeric_scale`, or leave it out to have the \
         numbers as text"
    ))
}
