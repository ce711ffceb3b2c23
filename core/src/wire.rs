//! The forms of values in row images: those of all log formats. Each column of a table map has one.

use crate::decimal::image_size;
use crate::network::Network;
use crate::old_temporal;
use crate::schema::ColumnType;

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
    /// A length of 4 bytes, then what `list` describes. Only in logs of the format `rows`, too.
    List,
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
    /// A length (1 byte), then a value in the usual form, or if the length is at least `OPEN_TEXT`, the text
    /// of a value that this form cannot have, with spaces behind it. Only in images that are made when a log
    /// is read.
    Open(Usual),
    /// As PostgreSQL sends it: `b` or `t`, a length (4 bytes, big-endian), then the value in the server's
    /// binary form or as text. Also dates and numbers that the usual form cannot have.
    Sent(Sent),
}

/// The types of PostgreSQL whose values stay in images as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Xid8,
    Float4,
    Float8,
    Numeric { precision: u8, scale: u8 },
    Money { precision: u8, scale: u8 },
    Text,
    Bytea,
    Json,
    Jsonb,
    Date,
    Timestamp { fsp: u8 },
    TimestampTz,
    Time { fsp: u8 },
    Uuid,
}

impl Sent {
    /// The form that such values have in other logs.
    pub fn usual(self) -> WireType {
        let int = |width| WireType::Int { width, unsigned: false };
        match self {
            Self::Bool => WireType::Boolean,
            Self::Int2 => int(2),
            Self::Int4 => int(4),
            Self::Int8 | Self::Oid => int(8),
            Self::Xid8 => WireType::Decimal { precision: 20, scale: 0 },
            Self::Float4 => WireType::Float,
            Self::Float8 => WireType::Double,
            Self::Numeric { precision, scale } | Self::Money { precision, scale } => {
                WireType::Decimal { precision, scale }
            }
            Self::Text | Self::Bytea | Self::Uuid => WireType::Blob { prefix: 4 },
            Self::Json | Self::Jsonb => WireType::JsonText { prefix: 4 },
            Self::Date => WireType::Date,
            Self::Timestamp { fsp } => WireType::DateTime { fsp },
            Self::TimestampTz => WireType::Instant,
            Self::Time { fsp } => WireType::Time { fsp },
        }
    }
}

/// The forms that an open one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usual {
    Date,
    DateTime { fsp: u8 },
    Instant,
    Decimal { precision: u8, scale: u8 },
}

/// Bytes. No usual form has so many.
pub const OPEN_TEXT: usize = 40;

impl Usual {
    pub fn wire(self) -> WireType {
        match self {
            Self::Date => WireType::Date,
            Self::DateTime { fsp } => WireType::DateTime { fsp },
            Self::Instant => WireType::Instant,
            Self::Decimal { precision, scale } => WireType::Decimal { precision, scale },
        }
    }
}

/// The form of a column's values, where sources may have dates and numbers that the usual forms cannot have.
pub fn open_form(kind: &ColumnType) -> WireType {
    WireType::Open(match form(kind) {
        WireType::Date => Usual::Date,
        WireType::DateTime { fsp } => Usual::DateTime { fsp },
        WireType::Instant => Usual::Instant,
        WireType::Decimal { precision, scale } => Usual::Decimal { precision, scale },
        other => return other,
    })
}

/// How the end of a value in a row image is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Fixed(u8),
    /// The value has its length before it. Size of the length field, in bytes.
    Prefixed(u8),
    /// See `WireType::Sent`.
    Sent,
    /// Only the table's definition says it.
    Unknown,
}

impl WireType {
    /// A part of `skip_value`.
    #[inline(always)]
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
            Self::List => Extent::Prefixed(4),
            Self::Open(_) => Extent::Prefixed(1),
            Self::Sent(_) => Extent::Sent,
        }
    }

    /// The form without the marks of an open one, or of one that was sent.
    pub fn usual(self) -> Self {
        match self {
            Self::Open(of) => of.wire(),
            Self::Sent(of) => of.usual(),
            other => other,
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

/// The form of a column's values in logs that have none of their own. Texts are UTF-8.
pub fn form(kind: &ColumnType) -> WireType {
    match *kind {
        ColumnType::Integer { width, unsigned } => WireType::Int { width, unsigned },
        ColumnType::Decimal { precision, scale } => WireType::Decimal { precision, scale },
        ColumnType::Boolean => WireType::Boolean,
        ColumnType::Float => WireType::Float,
        ColumnType::Double => WireType::Double,
        ColumnType::Bit { bits } => WireType::Bit { bits: bits.into() },
        ColumnType::Year { short: false } => WireType::Year,
        ColumnType::Year { short: true } => WireType::ShortYear,
        ColumnType::Date => WireType::Date,
        ColumnType::DateTime { fsp } => WireType::DateTime { fsp },
        ColumnType::Timestamp { .. } => WireType::Instant,
        ColumnType::Time { fsp } => WireType::Time { fsp },
        ColumnType::Enum { .. } => WireType::Enum { width: 2 },
        ColumnType::Set { .. } => WireType::Set { width: 8 },
        ColumnType::Json => WireType::JsonText { prefix: 4 },
        ColumnType::Geometry => WireType::Geometry { prefix: 4 },
        ColumnType::Vector => WireType::Vector { prefix: 4 },
        ColumnType::List(_) => WireType::List,
        ColumnType::Text { .. }
        | ColumnType::Binary { .. }
        | ColumnType::Network(_)
        | ColumnType::Numeric
        | ColumnType::Interval => WireType::Blob { prefix: 4 },
    }
}

/// What stands in a `Blob` for a value that is not known and cannot be NULL: empty, or zero.
pub fn neutral(kind: &ColumnType) -> &'static [u8] {
    match kind {
        ColumnType::Network(Network::Uuid) => &[0; 16],
        ColumnType::Numeric => b"0",
        ColumnType::Interval => b"PT0S",
        _ => &[],
    }
}

fn old(sizes: [u8; 7], fsp: Option<u8>) -> Extent {
    let size = fsp.and_then(|fsp| sizes.get(usize::from(fsp)));
    size.map_or(Extent::Unknown, |size| Extent::Fixed(*size))
}
