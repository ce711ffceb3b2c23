//! Values of messages, and how they are written into row images.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{json, Value as Json};

use crate::decimal::image_size;
use crate::list::{append_document, Written};
use crate::temporal::Date;

/// The type of a column of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Bool,
    Int {
        width: u8,
    },
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    /// A number without a precision.
    Numeric,
    Interval,
    Date,
    Time {
        fsp: u8,
    },
    DateTime {
        fsp: u8,
    },
    Timestamp {
        fsp: u8,
    },
    Text,
    Json,
    Binary,
    Bit {
        bits: u8,
    },
    Geometry,
    /// Elements of one kind, which is no list.
    List(Box<Self>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    /// The message says that it does not have the value, and that the value did not change.
    Absent,
    Int(i128),
    Float(f64),
    /// Digits with an optional sign and point.
    Decimal(Cow<'a, str>),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Days since 1970.
    Date(i64),
    /// Microseconds.
    Time(i64),
    /// Microseconds since 1970.
    Moment(i128),
    /// Bits as a number.
    Bits(u64),
    Geometry {
        srid: u32,
        wkb: Vec<u8>,
    },
    List(Vec<Value<'a>>),
    /// An array that is no list of its column's elements, as JSON.
    Document(Cow<'a, str>),
}

/// Why a value cannot be written. It names no value.
pub type Refused = Cow<'static, str>;

const DAYS_MIN: i64 = -719_162; // 0001-01-01
const DAYS_MAX: i64 = 2_932_896; // 9999-12-31
const DAY_US: i128 = 86_400_000_000;
/// 838:59:59.999999, as the log's form allows.
const TIME_US_MAX: i64 = 839 * 3_600_000_000 - 1;

impl Kind {
    /// The column as definitions have it (`penstock.model.schema.Column`).
    pub fn column(&self, name: &str, nullable: bool) -> Json {
        let mut column = json!({"name": name, "type": self.name(), "nullable": nullable});
        match *self {
            Self::Decimal { precision, scale } => {
                (column["precision"], column["scale"]) = (precision.into(), scale.into());
            }
            Self::Time { fsp } | Self::DateTime { fsp } | Self::Timestamp { fsp } => {
                column["fsp"] = fsp.into();
            }
            // Texts are equal only if all their bytes are.
            Self::Text => (column["charset"], column["collation"]) = ("utf8mb4".into(), "binary".into()),
            Self::Bit { bits } => column["length"] = bits.into(),
            Self::List(ref element) => column["element"] = element.column("element", true),
            _ => {}
        }
        column["column_type"] = self.shown().into();
        column
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int { width: 1 } => "tinyint",
            Self::Int { width: 2 } => "smallint",
            Self::Int { width: 4 } => "int",
            Self::Int { .. } => "bigint",
            Self::Float => "float",
            Self::Double => "double",
            Self::Decimal { .. } => "decimal",
            Self::Numeric => "numeric",
            Self::Interval => "interval",
            Self::Date => "date",
            Self::Time { .. } => "time",
            Self::DateTime { .. } => "datetime",
            Self::Timestamp { .. } => "timestamp",
            Self::Text => "longtext",
            Self::Json => "json",
            Self::Binary => "longblob",
            Self::Bit { .. } => "bit",
            Self::Geometry => "geometry",
            Self::List(_) => "list",
        }
    }

    /// The whole type, for people.
    fn shown(&self) -> String {
        match *self {
            Self::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
            Self::Time { fsp } | Self::DateTime { fsp } | Self::Timestamp { fsp } if fsp > 0 => {
                format!("{}({fsp})", self.name())
            }
            Self::Bit { bits } => format!("bit({bits})"),
            Self::List(ref element) => format!("list of {}", element.shown()),
            _ => self.name().to_owned(),
        }
    }
}

/// Appends a value, which is not null, as a column of this kind has it in row images.
pub fn put(value: &Value<'_>, kind: &Kind, out: &mut Vec<u8>) -> Result<(), Refused> {
    match (kind, value) {
        (Kind::Bool, Value::Int(number)) => put_int(*number, 1, out),
        (Kind::Int { width }, Value::Int(number)) => put_int(*number, *width, out),
        (Kind::Float, Value::Float(number)) => {
            out.extend((*number as f32).to_le_bytes());
            Ok(())
        }
        (Kind::Double, Value::Float(number)) => {
            out.extend(number.to_le_bytes());
            Ok(())
        }
        (Kind::Double, Value::Int(number)) if number.unsigned_abs() <= 1 << 53 => {
            out.extend((*number as f64).to_le_bytes());
            Ok(())
        }
        (Kind::Decimal { precision, scale }, Value::Decimal(text)) => {
            put_decimal(text, *precision, *scale, out)
        }
        (Kind::Decimal { precision, scale }, Value::Int(number)) => {
            put_decimal(&number.to_string(), *precision, *scale, out)
        }
        (Kind::Date, Value::Date(days)) => {
            let date = date(*days)?;
            let bits = u32::from(date.year) << 9 | u32::from(date.month) << 5 | u32::from(date.day);
            out.extend_from_slice(&bits.to_le_bytes()[..3]);
            Ok(())
        }
        (Kind::Time { fsp }, Value::Time(micros)) => put_time(*micros, *fsp, out),
        (Kind::DateTime { fsp }, Value::Moment(micros)) => put_datetime(*micros, *fsp, out),
        (Kind::Timestamp { .. }, Value::Moment(micros)) => put_timestamp(*micros, out),
        (Kind::Text | Kind::Json | Kind::Interval, Value::Text(text)) => put_blob(text.as_bytes(), out),
        (Kind::Text | Kind::Numeric, Value::Decimal(text)) => put_blob(plain(text)?.as_bytes(), out),
        (Kind::Text | Kind::Numeric, Value::Int(number)) => put_blob(number.to_string().as_bytes(), out),
        (Kind::Binary, Value::Bytes(bytes)) => put_blob(bytes, out),
        (Kind::Bit { bits }, Value::Bits(number)) => {
            if *bits < 64 && number >> bits != 0 {
                return Err(format!("it has more than {bits} bits").into());
            }
            let width = usize::from(bits.div_ceil(8));
            out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
            Ok(())
        }
        (Kind::Geometry, Value::Geometry { srid, wkb }) => {
            let mut bytes = srid.to_le_bytes().to_vec();
            bytes.extend_from_slice(wkb);
            put_blob(&bytes, out)
        }
        (Kind::List(element), Value::List(values)) => {
            let mut list = Written::default();
            for value in values {
                match value {
                    Value::Null => list.null(),
                    value => put(value, element, list.element())?,
                }
            }
            list.finish(out).ok_or_else(|| Refused::from("it has more than 4 GiB"))
        }
        (Kind::List(_), Value::Document(json)) => append_document(out, |out| {
            out.extend_from_slice(json.as_bytes());
            Ok(())
        })
        .map_err(|error| Refused::from(error.to_string())),
        _ => Err(format!("it is no value of a column {}", kind.name()).into()),
    }
}

fn put_int(number: i128, width: u8, out: &mut Vec<u8>) -> Result<(), Refused> {
    let limit = 1i128 << (8 * u32::from(width) - 1);
    if !(-limit..limit).contains(&number) {
        return Err(format!("the number does not fit into {width} bytes").into());
    }
    out.extend_from_slice(&number.to_le_bytes()[..usize::from(width)]);
    Ok(())
}

fn put_blob(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
    let length = u32::try_from(bytes.len()).map_err(|_| Refused::from("it has more than 4 GiB"))?;
    out.extend(length.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

fn date(days: i64) -> Result<Date, Refused> {
    if !(DAYS_MIN..=DAYS_MAX).contains(&days) {
        return Err("the date is not in the years 1 to 9999".into());
    }
    Ok(Date::from_days(days as i32))
}

fn put_fraction(micros: u64, fsp: u8, out: &mut Vec<u8>) {
    let width = usize::from(fsp.div_ceil(2));
    let units = micros / [1, 10_000, 100, 1][width];
    out.extend_from_slice(&units.to_be_bytes()[8 - width..]);
}

fn put_time(micros: i64, fsp: u8, out: &mut Vec<u8>) -> Result<(), Refused> {
    if micros.abs() > TIME_US_MAX {
        return Err("the time is longer than 838 hours".into());
    }
    let magnitude = micros.unsigned_abs();
    let (seconds, fraction) = (magnitude / 1_000_000, magnitude % 1_000_000);
    let whole = (seconds / 3600) << 12 | (seconds / 60 % 60) << 6 | (seconds % 60);
    let width = usize::from(fsp.div_ceil(2));
    let fraction = fraction / [1_000_000, 10_000, 100, 1][width];
    let number = (whole << (8 * width) | fraction) as i64;
    let zero = 1i64 << (23 + 8 * width);
    let stored = if micros < 0 { zero - number } else { zero + number };
    out.extend_from_slice(&stored.to_be_bytes()[8 - 3 - width..]);
    Ok(())
}

fn put_datetime(micros: i128, fsp: u8, out: &mut Vec<u8>) -> Result<(), Refused> {
    let days = i64::try_from(micros.div_euclid(DAY_US)).unwrap_or(i64::MAX);
    let date = date(days)?;
    let rest = micros.rem_euclid(DAY_US) as u64;
    let seconds = rest / 1_000_000;
    let months = u64::from(date.year) * 13 + u64::from(date.month);
    let packed = 1 << 39
        | months << 22
        | u64::from(date.day) << 17
        | (seconds / 3600) << 12
        | (seconds / 60 % 60) << 6
        | (seconds % 60);
    out.extend_from_slice(&packed.to_be_bytes()[3..]);
    put_fraction(rest % 1_000_000, fsp, out);
    Ok(())
}

fn put_timestamp(micros: i128, out: &mut Vec<u8>) -> Result<(), Refused> {
    date(i64::try_from(micros.div_euclid(DAY_US)).unwrap_or(i64::MAX))?;
    out.extend((micros as i64).to_le_bytes());
    Ok(())
}

/// Bytes of 0 to 9 digits.
const DIGIT_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Most digits that an exponent adds to a number.
const EXPONENT_MAX: i64 = 1024;

/// A number without plus sign and exponent, which JSON may have (`decimal.format=NUMERIC`).
fn plain(text: &str) -> Result<Cow<'_, str>, Refused> {
    const REFUSED: &str = "it is no decimal number";
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| REFUSED)?),
        None => (text, 0),
    };
    let digits = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !(whole.bytes().chain(fraction.bytes())).all(|byte| byte.is_ascii_digit()) || whole.is_empty() {
        return Err(REFUSED.into());
    }
    if exponent == 0 {
        return Ok(Cow::Borrowed(mantissa));
    }
    if exponent.abs() > EXPONENT_MAX {
        return Err("the decimal number is too long".into());
    }
    let mut digits = format!("{whole}{fraction}");
    let mut point = whole.len() as i64 + exponent;
    if point < 1 {
        digits.insert_str(0, &"0".repeat((1 - point) as usize));
        point = 1;
    }
    let point = point as usize;
    if digits.len() <= point {
        digits.push_str(&"0".repeat(point - digits.len()));
    } else {
        digits.insert(point, '.');
    }
    let zeros = digits.bytes().take_while(|digit| *digit == b'0').count();
    let needed = digits.find('.').unwrap_or(digits.len()) - 1;
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    Ok(Cow::Owned(format!("{sign}{}", &digits[zeros.min(needed)..])))
}

fn put_decimal(text: &str, precision: u8, scale: u8, out: &mut Vec<u8>) -> Result<(), Refused> {
    let text = plain(text)?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, &*text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let (whole_max, scale) = (usize::from(precision - scale), usize::from(scale));
    if whole.len() > whole_max || fraction.len() > scale {
        return Err(format!("the number does not fit into DECIMAL({precision},{scale})").into());
    }
    let padded = format!("{whole:0>whole_max$}{fraction:0<scale$}");
    let (whole, fraction) = padded.split_at(whole_max);
    let start = out.len();
    let first = whole_max % 9;
    put_digits(&whole[..first], out);
    whole.as_bytes()[first..].chunks(9).for_each(|group| put_group(group, out));
    fraction.as_bytes().chunks(9).for_each(|group| put_group(group, out));
    debug_assert_eq!(out.len() - start, image_size(precision, scale as u8));
    if negative && padded.bytes().any(|digit| digit != b'0') {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    if let Some(byte) = out.get_mut(start) {
        *byte ^= 0x80;
    }
    Ok(())
}

fn put_digits(digits: &str, out: &mut Vec<u8>) {
    put_group(digits.as_bytes(), out);
}

/// At most nine digits, in as few bytes as their number needs.
fn put_group(digits: &[u8], out: &mut Vec<u8>) {
    let number = digits.iter().fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0'));
    out.extend_from_slice(&number.to_be_bytes()[4 - DIGIT_BYTES[digits.len()]..]);
}

/// The text of an unscaled number, a big-endian two's complement, with `scale` digits after the point.
pub fn decimal_text(bytes: &[u8], scale: i32) -> Result<String, Refused> {
    const BYTES_MAX: usize = 1024;
    if bytes.len() > BYTES_MAX || scale.unsigned_abs() as usize > BYTES_MAX {
        return Err("the decimal number is too long".into());
    }
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude: Vec<u8> = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (sum, more) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, more);
        }
        if carry {
            magnitude.insert(0, 1);
        }
    }
    let mut digits = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        let mut rest = 0u32;
        for byte in &mut magnitude {
            let number = rest << 8 | u32::from(*byte);
            (*byte, rest) = ((number / 10) as u8, number % 10);
        }
        digits.push(b'0' + rest as u8);
    }
    let places = usize::try_from(scale.max(0)).unwrap_or(0);
    while digits.len() <= places {
        digits.push(b'0');
    }
    digits.reverse();
    let mut text = String::from_utf8(digits).unwrap_or_default();
    if scale < 0 {
        text.extend(std::iter::repeat_n('0', scale.unsigned_abs() as usize));
    } else if places > 0 {
        text.insert(text.len() - places, '.');
    }
    if negative {
        text.insert(0, '-');
    }
    Ok(text)
}

const NAME_BYTES_MAX: usize = 255;

/// Refuses names that the log cannot have.
pub fn check_name(name: &str) -> Result<(), Refused> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err("a name is empty, longer than 255 bytes, or has a zero byte".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decimal::DecimalImage;

    proptest::proptest! {
        #[test]
        fn a_decimal_is_read_as_it_was_written(
            number in -999_999_999_999_999_999i64..=999_999_999_999_999_999, scale in 0u8..=18,
        ) {
            let text = decimal_text(&number.to_be_bytes(), scale.into()).unwrap();
            let (mut image, kind) = (Vec::new(), Kind::Decimal { precision: 18, scale });
            put(&Value::Decimal(text.clone().into()), &kind, &mut image).unwrap();
            let read = DecimalImage::new(&image, 18, scale).unwrap();
            proptest::prop_assert_eq!(read.unscaled().unwrap(), i128::from(number));
            let mut found = Vec::new();
            read.write_text(&mut found).unwrap();
            proptest::prop_assert_eq!(String::from_utf8(found).unwrap(), text);
        }
    }

    #[test]
    fn numbers_lose_their_exponent_and_no_digit() {
        for (sent, expected) in [
            ("1E-7", "0.0000001"),
            ("-1.50e+3", "-1500"),
            ("1.5E1", "15"),
            ("-0.00123E2", "-0.123"),
            ("12e0", "12"),
            ("+1.50", "1.50"),
            ("123E-3", "0.123"),
            ("0E-10", "0.0000000000"),
        ] {
            assert_eq!(plain(sent).unwrap(), expected);
            let mut image = Vec::new();
            put(&Value::Decimal(sent.into()), &Kind::Decimal { precision: 38, scale: 10 }, &mut image)
                .unwrap();
        }
        for wrong in ["", "-", "1.2.3", "1e", "e5", "1e99999999999", "1e2000", "NaN", "1 ", "0x1", ".5"] {
            assert!(plain(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let refused = |value: Value<'_>, kind| put(&value, &kind, &mut Vec::new()).is_err();
        assert!(refused(Value::Int(128), Kind::Int { width: 1 }));
        assert!(refused(Value::Decimal("1000".into()), Kind::Decimal { precision: 5, scale: 2 }));
        assert!(refused(Value::Decimal("1.001".into()), Kind::Decimal { precision: 5, scale: 2 }));
        assert!(refused(Value::Int(1 << 60), Kind::Double));
        assert!(refused(Value::Moment(300_000_000_000_000_000), Kind::Timestamp { fsp: 6 }));
        assert!(refused(Value::Bits(8), Kind::Bit { bits: 3 }));
        assert!(refused(Value::Text("1".into()), Kind::Int { width: 4 }));
    }
}
