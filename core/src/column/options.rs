//! The choices that users have about types of values: `penstock.model.schema.TypeOptions`.

use serde::Deserialize;

use crate::error::DecodeError;
use crate::schema::TableSchema;

/// What happens to dates that do not exist: `0000-00-00`, `2024-00-10`, February 31st, the year 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZeroDates {
    #[default]
    Null,
    /// Every date, datetime and timestamp column is utf8, as SELECT prints it.
    Text,
    /// The value is refused.
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BigintUnsigned {
    #[default]
    Decimal,
    /// int64; a value beyond it is refused.
    Long,
    String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decimals {
    /// decimal128 up to 38 digits, else utf8.
    #[default]
    Precise,
    String,
    /// The nearest double.
    Double,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    #[default]
    Text,
    /// int64, signed microseconds.
    Micros,
}

/// How BINARY, VARBINARY and the BLOB types are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binaries {
    #[default]
    Bytes,
    Base64,
    /// Upper-case digits, as HEX() prints them.
    Hex,
}

/// What happens to dates that are infinite, before the year 1 or after 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtremeDates {
    /// The value is refused.
    #[default]
    Error,
    Null,
    /// Every date, datetime and timestamp column is utf8.
    Text,
}

/// What happens to NaN and infinities of exact numbers, where the column cannot have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotNumbers {
    /// The value is refused.
    #[default]
    Error,
    Null,
    /// Every decimal column is utf8.
    Text,
}

/// How arrays of elements of one type are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrays {
    /// utf8, a JSON document.
    #[default]
    Json,
    List,
}

/// How TINYINT(1) is given, the type that BOOLEAN creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tinyint1 {
    #[default]
    Int,
    /// Every value but 0 is true.
    Boolean,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TypeOptions {
    pub zero_dates: ZeroDates,
    pub extreme_dates: ExtremeDates,
    pub bigint_unsigned: BigintUnsigned,
    pub decimal: Decimals,
    /// Numbers without a declared precision are decimal128 with so many digits after the point. None: utf8.
    pub numeric_scale: Option<u8>,
    pub not_numbers: NotNumbers,
    pub time: Times,
    pub binary: Binaries,
    pub tinyint1: Tinyint1,
    pub arrays: Arrays,
}

impl TypeOptions {
    /// From `TypeOptions.to_json()`.
    pub fn from_json(text: &str) -> Result<Self, DecodeError> {
        let fail = |reason: String| DecodeError::new(format!("type options: {reason}"), 0);
        let options: Self = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
        match options.numeric_scale {
            Some(39..) => Err(fail("`numeric_scale` is more than 38".to_owned())),
            _ => Ok(options),
        }
    }

    /// The options of one column. Options that make different values equal do not apply to key columns, and
    /// `tinyint1` applies only to TINYINT(1).
    pub fn of_column(mut self, table: &TableSchema, position: usize) -> Self {
        let column = &table.columns[position];
        let in_key = table.key.contains(&column.name);
        if in_key && self.decimal == Decimals::Double {
            self.decimal = Decimals::Precise;
        }
        if in_key {
            if self.not_numbers == NotNumbers::Null {
                self.not_numbers = NotNumbers::Error;
            }
            if self.extreme_dates == ExtremeDates::Null {
                self.extreme_dates = ExtremeDates::Error;
            }
            // A list is never part of a key.
            self.arrays = Arrays::Json;
        }
        if in_key || column.unsigned || !column.column_type.starts_with("tinyint(1)") {
            self.tinyint1 = Tinyint1::Int;
        }
        self
    }
}
