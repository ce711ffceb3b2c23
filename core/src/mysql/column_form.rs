//! The forms of values in MySQL's row images: the type code and metadata in the table map decide them.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::type_code as code;
use crate::wire::WireType;

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
