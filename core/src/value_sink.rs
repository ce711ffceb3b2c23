//! What takes the values of one column, one by one: Arrow builders, writers of messages and of images.

use crate::decimal::{with_image, DecimalImage};
use crate::error::ValueError;
use crate::temporal::{Date, DateTime, Instant, Time};

pub type Taken = std::result::Result<(), ValueError>;

/// Takes the values of one column, in their forms in the log.
pub trait ValueSink {
    fn null(&mut self) -> Taken;
    fn boolean(&mut self, value: bool) -> Taken;
    fn int(&mut self, value: i64) -> Taken;
    fn uint(&mut self, value: u64) -> Taken;
    fn float(&mut self, value: f32) -> Taken;
    fn double(&mut self, value: f64) -> Taken;
    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken;
    /// A decimal as its number times 10^scale.
    fn number(&mut self, unscaled: i128, precision: u8, scale: u8) -> Taken {
        with_image(unscaled, precision, scale, |image| self.decimal(image))
    }
    /// CHAR, VARCHAR and TEXT in the column's character set; BINARY, BLOB, GEOMETRY and VECTOR.
    fn bytes(&mut self, value: &[u8]) -> Taken;
    fn bit(&mut self, value: u64) -> Taken;
    /// 0, or 1901 to 2155; 0 to 99 of a YEAR(2).
    fn year(&mut self, value: u16) -> Taken;
    fn date(&mut self, value: Date) -> Taken;
    /// A date as days since 1970, of the years 1 to 9999.
    fn days(&mut self, days: i32) -> Taken {
        self.date(Date::from_days(days))
    }
    fn datetime(&mut self, value: DateTime) -> Taken;
    /// A date and time as microseconds since 1970, of the years 1 to 9999.
    fn micros(&mut self, micros: i64) -> Taken {
        self.datetime(DateTime::from_micros(micros))
    }
    fn timestamp(&mut self, value: Instant) -> Taken;
    fn time(&mut self, value: Time) -> Taken;
    /// ENUM ordinal or SET bits.
    fn label(&mut self, value: u64) -> Taken;
    /// A binary JSON document; `json::write_text` prints it.
    fn json(&mut self, document: &[u8]) -> Taken;
    fn json_text(&mut self, text: &[u8]) -> Taken;
    /// A list, which `List::parse` reads.
    fn list(&mut self, value: &[u8]) -> Taken;
    /// A date that is infinite, before the year 1 or after 9999, or a number that is NaN or infinite, as
    /// SELECT prints it.
    fn extreme(&mut self, _text: &[u8]) -> Taken {
        Err(ValueError::new(
            "a date that is infinite, before the year 1 or after 9999, or a number that is NaN or infinite, \
             which this format cannot write",
        ))
    }
    /// A binary JSON document, if the image before has it, and changes of it; `json::write_changed` prints
    /// the result.
    fn json_changed(&mut self, document: Option<&[u8]>, changes: &[u8]) -> Taken;
}
