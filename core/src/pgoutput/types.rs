//! PostgreSQL's types: which column each becomes. The only table of them.

use std::sync::Arc;

use serde_json::{json, Value as Json};

/// What the values of a type are, and so how they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PgType {
    Bool,
    Int2,
    Int4,
    Int8,
    /// Numbers without a sign, of 4 bytes.
    Oid,
    /// The same of 8 bytes.
    Xid8,
    Float4,
    Float8,
    Numeric,
    Money,
    /// Whatever is sent as its text, also in the binary form.
    Text,
    Json,
    Jsonb,
    Bytea,
    Bit,
    Date,
    Timestamp,
    TimestampTz,
    Time,
    TimeTz,
    Interval,
    Uuid,
    Inet,
    Mac,
    Lsn,
    /// Its text behind a version (`ltree`, `jsonpath`).
    VersionedText,
    TsVector,
    TsQuery,
    Point,
    Segment,
    Box,
    Path,
    Polygon,
    Line,
    Circle,
    /// Of the extension pgvector.
    Vector,
    Hstore,
    /// Of these elements.
    Array(Arc<PgType>),
    /// Of these bounds.
    Range(Arc<PgType>),
    Multirange(Arc<PgType>),
    /// A composite with these fields.
    Record(Arc<[PgType]>),
    /// Its binary form is not known. Its text is.
    Other,
}

/// Digits behind the point of `money`, whose form does not say them (`lc_monetary`).
pub const MONEY_SCALE: u8 = 2;
/// What the modifier of a length has beside the length.
const MODIFIER_HEAD: i32 = 4;
const DIGITS_MAX: i32 = 38;

impl PgType {
    /// By the number that a type has on every server (`pg_type.dat`).
    pub fn of(id: u32) -> Self {
        match id {
            16 => Self::Bool,
            21 => Self::Int2,
            23 => Self::Int4,
            20 => Self::Int8,
            26 | 28 => Self::Oid,
            5069 => Self::Xid8,
            700 => Self::Float4,
            701 => Self::Float8,
            1700 => Self::Numeric,
            790 => Self::Money,
            // "char", name, text, xml, char(n), varchar(n)
            18 | 19 | 25 | 142 | 1042 | 1043 => Self::Text,
            114 => Self::Json,
            3802 => Self::Jsonb,
            17 => Self::Bytea,
            1560 | 1562 => Self::Bit,
            1082 => Self::Date,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1083 => Self::Time,
            1266 => Self::TimeTz,
            1186 => Self::Interval,
            2950 => Self::Uuid,
            650 | 869 => Self::Inet,
            774 | 829 => Self::Mac,
            3220 => Self::Lsn,
            3614 => Self::TsVector,
            3615 => Self::TsQuery,
            4072 => Self::VersionedText,
            600 => Self::Point,
            601 => Self::Segment,
            602 => Self::Path,
            603 => Self::Box,
            604 => Self::Polygon,
            628 => Self::Line,
            718 => Self::Circle,
            _ => match element_of(id) {
                Some(element) => Self::Array(Arc::new(Self::of(element))),
                None => Self::Other,
            },
        }
    }

    /// By what the catalog says: a type's number; or a name, and the types that it is made of, as in
    /// `["range", 23]`.
    pub fn of_json(kind: &Json) -> Self {
        let Json::Array(said) = kind else {
            return kind.as_u64().and_then(|id| id.try_into().ok()).map_or(Self::Other, Self::of);
        };
        let one = || Arc::new(said.get(1).map_or(Self::Other, Self::of_json));
        match said.first().and_then(Json::as_str) {
            Some("array") => Self::Array(one()),
            Some("range") => Self::Range(one()),
            Some("multirange") => Self::Multirange(one()),
            Some("record") => Self::Record(said[1..].iter().map(Self::of_json).collect()),
            Some("hstore") => Self::Hstore,
            Some("versioned") => Self::VersionedText,
            Some("vector") => Self::Vector,
            _ => Self::Other,
        }
    }

    /// Whether the binary form of its values is known.
    pub fn reads_binary(&self) -> bool {
        match self {
            Self::Array(element) if **element == Self::Money => true,
            // As text, it has the signs of the server's `lc_monetary`.
            Self::Money => true,
            _ => self.is_printable(),
        }
    }

    /// Whether values can be printed as the server prints them.
    fn is_printable(&self) -> bool {
        match self {
            Self::Other | Self::Money => false,
            Self::Array(of) | Self::Range(of) | Self::Multirange(of) => of.is_printable(),
            Self::Record(of) => of.iter().all(Self::is_printable),
            _ => true,
        }
    }

    /// What is between the elements of an array of it.
    pub fn delimiter(&self) -> u8 {
        if *self == Self::Box {
            b';'
        } else {
            b','
        }
    }
}

/// The type of the elements of an array type.
pub fn element_of(id: u32) -> Option<u32> {
    Some(match id {
        1000 => 16,
        1001 => 17,
        1002 => 18,
        1003 => 19,
        1005 => 21,
        1007 => 23,
        1016 => 20,
        1028 => 26,
        1011 => 28,
        271 => 5069,
        1021 => 700,
        1022 => 701,
        1231 => 1700,
        791 => 790,
        1009 => 25,
        143 => 142,
        1014 => 1042,
        1015 => 1043,
        199 => 114,
        3807 => 3802,
        1561 => 1560,
        1563 => 1562,
        1182 => 1082,
        1115 => 1114,
        1185 => 1184,
        1183 => 1083,
        1270 => 1266,
        1187 => 1186,
        2951 => 2950,
        651 => 650,
        1041 => 869,
        1040 => 829,
        775 => 774,
        3221 => 3220,
        3643 => 3614,
        3645 => 3615,
        4073 => 4072,
        1017 => 600,
        1018 => 601,
        1019 => 602,
        1020 => 603,
        1027 => 604,
        629 => 628,
        719 => 718,
        _ => return None,
    })
}

/// The column of a table (`penstock.model.schema.Column`). `said`: the type (`PgType::of_json`), of a domain
/// that of its base.
/// `modifier`: -1 if there is none. `shown`: as the server writes the type.
pub fn column(name: &str, said: &Json, modifier: i32, nullable: bool, shown: &str) -> Json {
    let mut column = json!({"name": name, "type": "longtext", "nullable": nullable, "column_type": shown});
    let length = (modifier >= MODIFIER_HEAD).then(|| modifier - MODIFIER_HEAD);
    let digits = if (0..=6).contains(&modifier) { modifier } else { 6 };
    let id = said.as_u64().unwrap_or(0) as u32;
    let kind = match PgType::of_json(said) {
        PgType::Bool => "boolean",
        PgType::Int2 => "smallint",
        PgType::Int4 => "int",
        PgType::Int8 | PgType::Oid => "bigint",
        PgType::Float4 => "float",
        PgType::Float8 => "double",
        PgType::Xid8 => decimal(&mut column, 20, 0),
        PgType::Money => decimal(&mut column, 19, MONEY_SCALE.into()),
        PgType::Numeric => match digits_of(modifier) {
            Some((precision, scale)) => decimal(&mut column, precision, scale),
            None => "numeric",
        },
        PgType::Interval => "interval",
        PgType::Json | PgType::Jsonb => "json",
        PgType::Array(_) => {
            // The modifier of an array is that of its elements.
            let element = element_of(id).map(Json::from).or_else(|| said.get(1).cloned());
            column["element"] = self::column("element", &element.unwrap_or_default(), modifier, true, "");
            "list"
        }
        PgType::Bytea => "longblob",
        PgType::Date => "date",
        PgType::Timestamp => fraction(&mut column, "datetime", digits),
        PgType::TimestampTz => fraction(&mut column, "timestamp", digits),
        PgType::Time => fraction(&mut column, "time", digits),
        PgType::Uuid => "uuid",
        PgType::Text => match (id, length) {
            (19, _) => text(&mut column, Some(63)),
            (18, _) => text(&mut column, Some(1)),
            (1042 | 1043, length) => text(&mut column, length),
            _ => text(&mut column, None),
        },
        _ => text(&mut column, None),
    };
    column["type"] = kind.into();
    column
}

fn decimal(column: &mut Json, precision: i32, scale: i32) -> &'static str {
    (column["precision"], column["scale"]) = (precision.into(), scale.into());
    "decimal"
}

fn fraction(column: &mut Json, kind: &'static str, digits: i32) -> &'static str {
    column["fsp"] = digits.into();
    kind
}

/// Texts are equal only if all their bytes are: see `penstock.model.schema`.
fn text(column: &mut Json, length: Option<i32>) -> &'static str {
    (column["charset"], column["collation"]) = ("utf8mb4".into(), "binary".into());
    match length {
        Some(length) => {
            column["length"] = length.into();
            "varchar"
        }
        None => "longtext",
    }
}

/// Precision and scale of a decimal with room for all values of `numeric(p, s)`. None: there is no such
/// limit, or the values have more digits than a decimal can.
pub fn digits_of(modifier: i32) -> Option<(i32, i32)> {
    let modifier = modifier.checked_sub(MODIFIER_HEAD).filter(|modifier| *modifier >= 0)?;
    let precision = modifier >> 16 & 0xffff;
    // Eleven bits, signed (from version 15 on, a scale may be negative).
    let scale = ((modifier & 0x7ff) ^ 1024) - 1024;
    let (precision, scale) = (if scale < 0 { precision - scale } else { precision.max(scale) }, scale.max(0));
    (precision <= DIGITS_MAX).then_some((precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modifier(precision: i32, scale: i32) -> i32 {
        (precision << 16 | scale & 0x7ff) + 4
    }

    #[test]
    fn a_decimal_has_room_for_scales_that_are_negative_or_exceed_the_precision() {
        assert_eq!(digits_of(modifier(10, 2)), Some((10, 2)));
        assert_eq!(digits_of(modifier(3, -2)), Some((5, 0)));
        assert_eq!(digits_of(modifier(2, 5)), Some((5, 5)));
        assert_eq!(digits_of(modifier(38, 10)), Some((38, 10)));
        assert_eq!(digits_of(modifier(39, 10)), None);
        assert_eq!(digits_of(-1), None);
    }
}
