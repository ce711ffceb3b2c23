//! The Arrow schemas of batches.

use arrow_schema::{DataType, Field, Schema, TimeUnit};

use super::{arrow_type, TypeOptions, ZeroDates};
use crate::schema::{ColumnType, TableSchema};

pub const SEQUENCE: &str = "_sequence";
pub const DELETED: &str = "_penstock_deleted";
pub const CHANGE_TYPE: &str = "_change_type";
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";
pub const PRESENT: &str = "_penstock_present";
pub const BASE: &str = "_penstock_base";

/// Which columns a batch has besides the table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// None.
    Rows,
    /// `_penstock_deleted, _sequence`.
    Latest,
    /// `_change_type, _sequence, _commit_timestamp`.
    Changelog,
}

impl Layout {
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "rows" => Self::Rows,
            "latest" => Self::Latest,
            "changelog" => Self::Changelog,
            _ => return None,
        })
    }

    /// The fields that Penstock adds. `_commit_timestamp` may be null, because rows of a snapshot have none.
    /// With `partial_images` there is also `_penstock_present`. It has one character for each column of the
    /// table: `1` if the row has a value, `0` if the value did not change and is given as null. If it is
    /// null, the row has all columns.
    pub fn added_fields(self, partial_images: bool) -> Vec<Field> {
        let first = match self {
            Self::Rows => return Vec::new(),
            Self::Latest => Field::new(DELETED, DataType::Boolean, true),
            Self::Changelog => Field::new(CHANGE_TYPE, DataType::Utf8, true),
        };
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let mut fields = vec![first, Field::new(SEQUENCE, DataType::Int64, true)];
        if self == Self::Changelog {
            fields.push(Field::new(COMMIT_TIMESTAMP, timestamp, true));
        }
        if partial_images {
            fields.push(Field::new(PRESENT, DataType::Utf8, true));
        }
        fields
    }
}

/// The Arrow schema of the columns at `positions` (None: all) in a layout. The error names the column.
pub fn arrow_schema(
    table: &TableSchema,
    positions: Option<&[usize]>,
    layout: Layout,
    options: TypeOptions,
    partial_images: bool,
) -> Result<Schema, String> {
    let field = |position: usize| {
        let column = &table.columns[position];
        let options = options.of_column(table, position);
        let kind = column.column_type().map_err(|reason| format!("column `{}`: {reason}", column.name))?;
        let nullable = layout != Layout::Rows || column.nullable || may_become_null(&kind, options);
        Ok(Field::new(&column.name, arrow_type(&kind, options), nullable))
    };
    let mut fields: Vec<Field> = match positions {
        None => (0..table.columns.len()).map(field).collect::<Result<_, String>>()?,
        Some(positions) => positions.iter().map(|at| field(*at)).collect::<Result<_, String>>()?,
    };
    fields.extend(layout.added_fields(partial_images));
    Ok(Schema::new(fields))
}

/// A NOT NULL column can contain zero dates, which may become null.
fn may_become_null(kind: &ColumnType, options: TypeOptions) -> bool {
    options.zero_dates == ZeroDates::Null
        && matches!(kind, ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. })
}
