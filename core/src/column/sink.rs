//! Appends values of row images to builders.

use super::{ColumnBuilder, Storage};
use crate::decimal::{self, DecimalImage};
use crate::error::ValueError;
use crate::json;
use crate::rows::{Taken, ValueSink};
use crate::temporal::{Date, DateTime, Instant, Time};

impl ValueSink for ColumnBuilder {
    #[inline]
    fn null(&mut self) -> Taken {
        self.append_null();
        Ok(())
    }

    fn boolean(&mut self, value: bool) -> Taken {
        self.append_i64(value.into())
    }

    #[inline]
    fn int(&mut self, value: i64) -> Taken {
        self.append_i64(value)
    }

    #[inline]
    fn uint(&mut self, value: u64) -> Taken {
        self.append_u64(value)
    }

    #[inline]
    fn float(&mut self, value: f32) -> Taken {
        self.append_f32(value)
    }

    #[inline]
    fn double(&mut self, value: f64) -> Taken {
        self.append_f64(value)
    }

    #[inline]
    fn decimal(&mut self, image: DecimalImage<'_>) -> Taken {
        self.append_decimal(image)
    }

    #[inline]
    fn number(&mut self, unscaled: i128, precision: u8, scale: u8) -> Taken {
        match &mut self.storage {
            Storage::Decimal(values, ..) if decimal::fits(unscaled, precision) => values.push(unscaled),
            _ => return decimal::with_image(unscaled, precision, scale, |image| self.append_decimal(image)),
        }
        Ok(())
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Taken {
        self.append_bytes(value)
    }

    #[inline]
    fn bit(&mut self, value: u64) -> Taken {
        self.append_bit(value)
    }

    #[inline]
    fn year(&mut self, value: u16) -> Taken {
        self.append_i64(value.into())
    }

    fn extreme(&mut self, text: &[u8]) -> Taken {
        self.append_extreme(text)
    }

    #[inline]
    fn date(&mut self, value: Date) -> Taken {
        self.append_date(value)
    }

    #[inline]
    fn days(&mut self, days: i32) -> Taken {
        match &mut self.storage {
            Storage::Date(values) => values.push(days),
            _ => return self.append_date(Date::from_days(days)),
        }
        Ok(())
    }

    #[inline]
    fn datetime(&mut self, value: DateTime) -> Taken {
        self.append_datetime(value)
    }

    #[inline]
    fn micros(&mut self, micros: i64) -> Taken {
        match &mut self.storage {
            Storage::Timestamp(values, _) => values.push(micros),
            _ => return self.append_datetime(DateTime::from_micros(micros)),
        }
        Ok(())
    }

    #[inline]
    fn timestamp(&mut self, value: Instant) -> Taken {
        self.append_instant(value)
    }

    #[inline]
    fn time(&mut self, value: Time) -> Taken {
        self.append_time(value)
    }

    #[inline]
    fn label(&mut self, value: u64) -> Taken {
        self.append_label(value)
    }

    #[inline]
    fn json(&mut self, document: &[u8]) -> Taken {
        self.append_json_document(document)
    }

    fn json_text(&mut self, text: &[u8]) -> Taken {
        self.append_json_text(text)
    }

    fn list(&mut self, value: &[u8]) -> Taken {
        self.append_list(value)
    }

    fn json_changed(&mut self, document: Option<&[u8]>, changes: &[u8]) -> Taken {
        let document = document.ok_or_else(no_document)?;
        self.append_json(|out| json::write_changed(document, changes, out))
    }
}

#[cold]
fn no_document() -> ValueError {
    ValueError::new(
        "the row images have only changes of the JSON document; partial JSON (binlog_row_value_options) \
         needs binlog_row_image = FULL",
    )
}
