//! The form of a column's values in row images. The type code and metadata in the table map decide it.

use crate::cursor::Cursor;
use crate::decimal::image_size;
use crate::error::Result;
use crate::old_temporal;

/// Type codes of `enum_field_types`.
pub mod code {
    pub const DECIMAL: u8 = 0;
    pub const TINY: u8 = 1;
    pub const SHORT: u8 = 2;
    pub const LONG: u8 = 3;
    pub const FLOAT: u8 = 4;
    pub const DOUBLE: u8 = 5;
    pub const NULL: u8 = 6;
    pub const TIMESTAMP: u8 = 7;
    pub const LONGLONG: u8 = 8;
    pub const INT24: u8 = 9;
    pub const DATE: u8 = 10;
    pub const TIME: u8 = 11;
    pub const DATETIME: u8 = 12;
    pub const YEAR: u8 = 13;
    pub const NEWDATE: u8 = 14;
    pub const VARCHAR: u8 = 15;
    pub const BIT: u8 = 16;
    pub const TIMESTAMP2: u8 = 17;
    pub const DATETIME2: u8 = 18;
    pub const TIME2: u8 = 19;
    pub const TYPED_ARRAY: u8 = 20;
    pub const MARIADB_BLOB_COMPRESSED: u8 = 140;
    pub const MARIADB_VARCHAR_COMPRESSED: u8 = 141;
    pub const VECTOR: u8 = 242;
    pub const JSON: u8 = 245;
    pub const NEWDECIMAL: u8 = 246;
    pub const ENUM: u8 = 247;
    pub const SET: u8 = 248;
    pub const TINY_BLOB: u8 = 249;
    pub const MEDIUM_BLOB: u8 = 250;
    pub const LONG_BLOB: u8 = 251;
    pub const BLOB: u8 = 252;
    pub const VAR_STRING: u8 = 253;
    pub const STRING: u8 = 254;
    pub const GEOMETRY: u8 = 255;
}

/// The form of the values of one column in row images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireType {
    Null,
    Int {
        width: u8,
        unsigned: bool,
    },
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Year,
    /// MariaDB's YEAR(2), which no map tells from YEAR: the definition does.
    ShortYear,
    Date,
    /// TIME from before MySQL 5.6.4 and MariaDB 10.1.2: three decimal bytes without a fraction, else a number
    /// (see `old_temporal`). MariaDB's maps do not say the digits of the fraction: None until a definition
    /// does.
    OldTime {
        fsp: Option<u8>,
    },
    /// DATETIME of the same age: eight decimal bytes without a fraction, else a number.
    OldDateTime {
        fsp: Option<u8>,
    },
    /// TIMESTAMP of the same age: four little-endian bytes without a fraction, else as `Timestamp` with other
    /// units.
    OldTimestamp {
        fsp: Option<u8>,
    },
    /// One byte. Only in logs of the format `rows`, as the two that follow.
    Boolean,
    /// Microseconds since 1970, signed; the least number is the zero date of MySQL.
    Instant,
    JsonText {
        prefix: u8,
    },
    Time {
        fsp: u8,
    },
    DateTime {
        fsp: u8,
    },
    Timestamp {
        fsp: u8,
    },
    /// CHAR and BINARY: a length (1 byte up to 255 bytes, else 2), then bytes without the padding.
    Char {
        length: u16,
    },
    /// VARCHAR and VARBINARY: a length as for CHAR, then bytes.
    Varchar {
        length: u16,
    },
    /// A length of 1 to 4 bytes, then bytes.
    Blob {
        prefix: u8,
    },
    /// MariaDB's `COMPRESSED` columns: like a Blob, but of bytes that `compressed_column` unpacks.
    Compressed {
        prefix: u8,
    },
    Json {
        prefix: u8,
    },
    Geometry {
        prefix: u8,
    },
    Vector {
        prefix: u8,
    },
    Bit {
        bits: u16,
    },
    Enum {
        width: u8,
    },
    Set {
        width: u8,
    },
}

/// How the end of a value in a row image is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Fixed(u8),
    /// The value has its length before it. Size of the length field, in bytes.
    Prefixed(u8),
    /// Only the table's definition says it.
    Unknown,
}

impl WireType {
    /// The form for a column's type code and its metadata, which is read from `metadata`.
    pub fn parse(type_code: u8, metadata: &mut Cursor<'_>) -> Result<Self> {
        const WHAT: &str = "column metadata";
        let unsigned = false;
        Ok(match type_code {
            code::TINY => Self::Int { width: 1, unsigned },
            code::SHORT => Self::Int { width: 2, unsigned },
            code::INT24 => Self::Int { width: 3, unsigned },
            code::LONG => Self::Int { width: 4, unsigned },
            code::LONGLONG => Self::Int { width: 8, unsigned },
            code::NULL => Self::Null,
            code::YEAR => Self::Year,
            code::DATE | code::NEWDATE => Self::Date,
            code::TIME => Self::OldTime { fsp: Some(0) },
            code::DATETIME => Self::OldDateTime { fsp: Some(0) },
            code::TIMESTAMP => Self::OldTimestamp { fsp: Some(0) },
            code::FLOAT => {
                metadata.u8(WHAT)?;
                Self::Float
            }
            code::DOUBLE => {
                metadata.u8(WHAT)?;
                Self::Double
            }
            code::TIME2 => Self::Time { fsp: parse_fsp(metadata)? },
            code::DATETIME2 => Self::DateTime { fsp: parse_fsp(metadata)? },
            code::TIMESTAMP2 => Self::Timestamp { fsp: parse_fsp(metadata)? },
            code::NEWDECIMAL => {
                let (precision, scale) = (metadata.u8(WHAT)?, metadata.u8(WHAT)?);
                if precision == 0 || scale > precision || precision > 65 {
                    return Err(metadata.fail(format!("DECIMAL({precision},{scale}) cannot be")));
                }
                Self::Decimal { precision, scale }
            }
            code::VARCHAR | code::VAR_STRING => Self::Varchar { length: metadata.u16(WHAT)? },
            code::BIT => {
                let (bits, bytes) = (metadata.u8(WHAT)?, metadata.u8(WHAT)?);
                let bits = u16::from(bytes) * 8 + u16::from(bits);
                if bits == 0 || bits > 64 {
                    return Err(metadata.fail(format!("BIT({bits}) cannot be")));
                }
                Self::Bit { bits }
            }
            code::BLOB | code::TINY_BLOB | code::MEDIUM_BLOB | code::LONG_BLOB => {
                Self::Blob { prefix: parse_prefix(metadata)? }
            }
            code::MARIADB_BLOB_COMPRESSED => Self::Compressed { prefix: parse_prefix(metadata)? },
            code::MARIADB_VARCHAR_COMPRESSED => {
                Self::Compressed { prefix: if metadata.u16(WHAT)? < 256 { 1 } else { 2 } }
            }
            code::JSON => Self::Json { prefix: parse_prefix(metadata)? },
            code::GEOMETRY => Self::Geometry { prefix: parse_prefix(metadata)? },
            code::VECTOR => Self::Vector { prefix: parse_prefix(metadata)? },
            code::STRING | code::ENUM | code::SET => return Self::parse_string(metadata),
            other => return Err(metadata.fail(format!("column type {other} is not supported"))),
        })
    }

    /// STRING is the code of CHAR, ENUM and SET. The first byte of its metadata is the real type, the second
    /// one a length. For a CHAR, bits 4 and 5 of the first byte, inverted, are bits 8 and 9 of the length.
    fn parse_string(metadata: &mut Cursor<'_>) -> Result<Self> {
        let (real, length) = (metadata.u8("column metadata")?, metadata.u8("column metadata")?);
        match real {
            code::ENUM if matches!(length, 1 | 2) => Ok(Self::Enum { width: length }),
            code::SET if matches!(length, 1..=4 | 8) => Ok(Self::Set { width: length }),
            _ if real | 0x30 == code::STRING => {
                let high = u16::from((real & 0x30) ^ 0x30) << 4;
                Ok(Self::Char { length: high | u16::from(length) })
            }
            _ => Err(metadata.fail(format!("string column of type {real}, length {length} cannot be"))),
        }
    }

    #[inline]
    pub fn extent(self) -> Extent {
        match self {
            Self::Null => Extent::Fixed(0),
            Self::Int { width, .. } | Self::Enum { width } | Self::Set { width } => Extent::Fixed(width),
            Self::Year | Self::ShortYear | Self::Boolean => Extent::Fixed(1),
            Self::Instant => Extent::Fixed(8),
            Self::Date => Extent::Fixed(3),
            Self::Float => Extent::Fixed(4),
            Self::Double => Extent::Fixed(8),
            Self::OldTime { fsp } => old(old_temporal::TIME, fsp),
            Self::OldDateTime { fsp } => old(old_temporal::DATETIME, fsp),
            Self::OldTimestamp { fsp } => old(old_temporal::TIMESTAMP, fsp),
            Self::Decimal { precision, scale } => Extent::Fixed(image_size(precision, scale) as u8),
            Self::Time { fsp } => Extent::Fixed(3 + fsp.div_ceil(2)),
            Self::Timestamp { fsp } => Extent::Fixed(4 + fsp.div_ceil(2)),
            Self::DateTime { fsp } => Extent::Fixed(5 + fsp.div_ceil(2)),
            Self::Bit { bits } => Extent::Fixed(bits.div_ceil(8) as u8),
            Self::Char { length } | Self::Varchar { length } => {
                Extent::Prefixed(if length < 256 { 1 } else { 2 })
            }
            Self::Blob { prefix }
            | Self::Compressed { prefix }
            | Self::Json { prefix }
            | Self::Geometry { prefix }
            | Self::Vector { prefix }
            | Self::JsonText { prefix } => Extent::Prefixed(prefix),
        }
    }

    /// The digits of the fraction of an old TIME, DATETIME or TIMESTAMP, if it is one.
    pub fn old_fraction(&mut self) -> Option<&mut Option<u8>> {
        match self {
            Self::OldTime { fsp } | Self::OldDateTime { fsp } | Self::OldTimestamp { fsp } => Some(fsp),
            _ => None,
        }
    }

    /// Whether the value's bytes are characters of the column's character set, or bytes.
    pub fn is_string(self) -> bool {
        matches!(self, Self::Char { .. } | Self::Varchar { .. } | Self::Blob { .. } | Self::Compressed { .. })
    }
}

fn old(sizes: [u8; 7], fsp: Option<u8>) -> Extent {
    let size = fsp.and_then(|fsp| sizes.get(usize::from(fsp)));
    size.map_or(Extent::Unknown, |size| Extent::Fixed(*size))
}

fn parse_fsp(metadata: &mut Cursor<'_>) -> Result<u8> {
    match metadata.u8("fractional digits")? {
        fsp @ 0..=6 => Ok(fsp),
        other => Err(metadata.fail(format!("{other} fractional digits cannot be"))),
    }
}

fn parse_prefix(metadata: &mut Cursor<'_>) -> Result<u8> {
    match metadata.u8("bytes of a length")? {
        prefix @ 1..=4 => Ok(prefix),
        other => Err(metadata.fail(format!("a length of {other} bytes cannot be"))),
    }
}
