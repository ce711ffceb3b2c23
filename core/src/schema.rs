//! `penstock.model.schema.TableSchema` as Rust: the contract between the catalog and the decoders.

use serde::Deserialize;

use crate::charset::Charset;
use crate::error::DecodeError;
use crate::network::Network;
use crate::table_name;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TableSchema {
    pub database: String,
    pub table: String,
    /// Of PostgreSQL: the database that the schema is in. Else empty.
    #[serde(default)]
    pub catalog: String,
    #[serde(default)]
    pub version: u32,
    #[serde(default)]
    pub key: Vec<String>,
    pub columns: Vec<ColumnSchema>,
}

/// One column as information_schema describes it. `kind` is the server's DATA_TYPE.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ColumnSchema {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default = "yes")]
    pub nullable: bool,
    #[serde(default)]
    pub unsigned: bool,
    pub length: Option<u32>,
    pub precision: Option<u8>,
    pub scale: Option<u8>,
    pub fsp: Option<u8>,
    pub charset: Option<String>,
    pub collation: Option<String>,
    pub labels: Option<Vec<String>>,
    pub generated: Option<String>,
    /// Of a list: its elements.
    pub element: Option<Box<ColumnSchema>>,
    #[serde(default)]
    pub invisible: bool,
    /// The type as the server prints it, for messages.
    #[serde(default)]
    pub column_type: String,
}

fn yes() -> bool {
    true
}

/// The kind of a column's values, with everything that decides how they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnType {
    /// tinyint … bigint, by their size in bytes: 1 2 3 4 8.
    Integer {
        width: u8,
        unsigned: bool,
    },
    Decimal {
        precision: u8,
        scale: u8,
    },
    /// An exact number of any length, or what is no number, as text.
    Numeric,
    /// A span of time in the form of ISO 8601.
    Interval,
    Boolean,
    Float,
    Double,
    /// 1 to 64 bits.
    Bit {
        bits: u8,
    },
    /// `short`: MariaDB's YEAR(2), whose values are 0 to 99.
    Year {
        short: bool,
    },
    Date,
    DateTime {
        fsp: u8,
    },
    Timestamp {
        fsp: u8,
    },
    Time {
        fsp: u8,
    },
    /// `trimmed`: CHAR, which is read without the spaces at its end.
    Text {
        charset: Charset,
        trimmed: bool,
    },
    /// `padded`: BINARY(n), whose zero bytes at the end are not in the log.
    Binary {
        padded: Option<u32>,
    },
    Enum {
        labels: Vec<String>,
        charset: Charset,
    },
    Set {
        labels: Vec<String>,
        charset: Charset,
    },
    /// MariaDB's inet4, inet6 and uuid.
    Network(Network),
    Json,
    /// Internal form: SRID (4 bytes little-endian), then WKB.
    Geometry,
    Vector,
    /// Of elements of one type, which may be NULL. Elements are no lists.
    List(Box<ColumnType>),
}

impl TableSchema {
    /// From `TableSchema.to_json()`.
    pub fn from_json(text: &str) -> Result<Self, DecodeError> {
        let schema: Self = serde_json::from_str(text)
            .map_err(|error| DecodeError::new(format!("table schema: {error}"), 0))?;
        schema.check()?;
        Ok(schema)
    }

    /// Whether types are known, and the key's columns are columns.
    pub fn check(&self) -> Result<(), DecodeError> {
        for column in &self.columns {
            column
                .column_type()
                .map_err(|reason| self.error(format!("column `{}`: {reason}", column.name)))?;
        }
        if let Some(missing) = self.key.iter().find(|name| self.position(name).is_none()) {
            return Err(self.error(format!("key column `{missing}` is not a column")));
        }
        Ok(())
    }

    /// The name used in errors: see `table_name`.
    pub fn name(&self) -> String {
        table_name::text(&self.database, &self.table)
    }

    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|candidate| candidate.name == column)
    }

    /// Indices of the key's columns, in the key's order.
    pub fn key_positions(&self) -> Vec<usize> {
        self.key.iter().filter_map(|name| self.position(name)).collect()
    }

    fn error(&self, reason: String) -> DecodeError {
        DecodeError::of_table(self.name(), format!("schema of {}: {reason}", self.name()), 0)
    }
}

impl ColumnSchema {
    /// The kind of the column's values. The error says what is missing or unknown.
    pub fn column_type(&self) -> Result<ColumnType, String> {
        let unsigned = self.unsigned;
        let fsp = self.fsp.unwrap_or(0);
        if fsp > 6 {
            return Err(format!("{fsp} fractional digits; at most 6 are possible"));
        }
        Ok(match self.kind.as_str() {
            "tinyint" => ColumnType::Integer { width: 1, unsigned },
            "smallint" => ColumnType::Integer { width: 2, unsigned },
            "mediumint" => ColumnType::Integer { width: 3, unsigned },
            "int" | "integer" => ColumnType::Integer { width: 4, unsigned },
            "bigint" => ColumnType::Integer { width: 8, unsigned },
            "decimal" => self.decimal()?,
            "numeric" => ColumnType::Numeric,
            "interval" => ColumnType::Interval,
            "boolean" => ColumnType::Boolean,
            "float" => ColumnType::Float,
            "double" => ColumnType::Double,
            "bit" => match self.length {
                Some(bits @ 1..=64) => ColumnType::Bit { bits: bits as u8 },
                _ => return Err("a bit column needs `length`, 1 to 64".into()),
            },
            "year" => ColumnType::Year { short: self.column_type.starts_with("year(2)") },
            "date" => ColumnType::Date,
            "datetime" => ColumnType::DateTime { fsp },
            "timestamp" => ColumnType::Timestamp { fsp },
            "time" => ColumnType::Time { fsp },
            "char" => self.text(true)?,
            "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => self.text(false)?,
            "binary" => ColumnType::Binary {
                padded: Some(
                    self.length.filter(|length| *length <= 255).ok_or("a binary column needs `length`")?,
                ),
            },
            "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
                ColumnType::Binary { padded: None }
            }
            "inet4" => ColumnType::Network(Network::Inet4),
            "inet6" => ColumnType::Network(Network::Inet6),
            "uuid" => ColumnType::Network(Network::Uuid),
            "enum" => ColumnType::Enum { labels: self.labels()?, charset: self.charset()? },
            "set" => ColumnType::Set { labels: self.labels()?, charset: self.charset()? },
            "json" => ColumnType::Json,
            "vector" => ColumnType::Vector,
            "list" => self.list()?,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
            | "multipolygon" | "geometrycollection" | "geomcollection" => ColumnType::Geometry,
            other => return Err(format!("type `{other}` is not known")),
        })
    }

    fn decimal(&self) -> Result<ColumnType, String> {
        match (self.precision, self.scale.unwrap_or(0)) {
            (Some(precision @ 1..=65), scale @ 0..=38) if scale <= precision => {
                Ok(ColumnType::Decimal { precision, scale })
            }
            _ => Err("a decimal column needs `precision` (1 to 65) and `scale` (0 to 38)".into()),
        }
    }

    fn list(&self) -> Result<ColumnType, String> {
        let element = self.element.as_ref().ok_or("a list column needs `element`")?.column_type()?;
        match element {
            ColumnType::List(_) => Err("the elements of a list cannot be lists".into()),
            element => Ok(ColumnType::List(Box::new(element))),
        }
    }

    fn text(&self, trimmed: bool) -> Result<ColumnType, String> {
        Ok(match self.charset()? {
            Charset::Binary => ColumnType::Binary { padded: self.length.filter(|_| trimmed) },
            charset => ColumnType::Text { charset, trimmed },
        })
    }

    fn labels(&self) -> Result<Vec<String>, String> {
        self.labels.clone().ok_or_else(|| format!("a column of type {} needs `labels`", self.kind))
    }

    fn charset(&self) -> Result<Charset, String> {
        match &self.charset {
            None => Ok(Charset::Utf8),
            Some(name) => {
                Charset::from_name(name).ok_or_else(|| format!("character set `{name}` is not known"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_without_what_its_types_need_is_refused() {
        let json = r#"{"database":"d","table":"t","key":["id"],"columns":[{"name":"id","type":"bit"}]}"#;
        let error = TableSchema::from_json(json).unwrap_err();
        assert_eq!(error.table(), Some("d.t"));
        assert!(error.reason().contains("`id`: a bit column needs `length`"), "{error}");
    }

    #[test]
    fn unknown_fields_are_left_to_others() {
        let json = r#"{"database":"d","table":"t","version":3,"key":[],"columns":
            [{"name":"a","type":"int","unsigned":true,"column_type":"int unsigned","default":"1"}]}"#;
        let schema = TableSchema::from_json(json).unwrap();
        assert_eq!(schema.columns[0].column_type(), Ok(ColumnType::Integer { width: 4, unsigned: true }));
    }
}
