//! The Arrow schemas of batches.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use super::{arrow_type, ExtremeDates, NotNumbers, TypeOptions, ZeroDates};
use crate::schema::{ColumnType, TableSchema};

pub const SEQUENCE: &str = "_sequence";
pub const DELETED: &str = "_penstock_deleted";
pub const CHANGE_TYPE: &str = "_change_type";
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";
pub const PRESENT: &str = "_penstock_present";
pub const BASE: &str = "_penstock_base";

/// The name that Penstock's column `name` has in rows of a table: another one if a column of the table has
/// it, in any case. `transforms` may rename that column, and then gives Penstock's column its name.
pub fn free_name(table: &TableSchema, name: &str) -> String {
    let taken = table.columns.iter().any(|column| folded(&column.name).eq(name.chars()));
    if taken {
        hidden(name)
    } else {
        name.to_owned()
    }
}

/// Penstock's column `name` of a batch, under either of its names.
pub fn added<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a ArrayRef> {
    batch.column_by_name(&hidden(name)).or_else(|| batch.column_by_name(name))
}

/// No column of a table has a name that begins like this.
fn hidden(name: &str) -> String {
    format!("_penstock{name}")
}

/// Folds case as Spark does when it looks up columns.
fn folded(name: &str) -> impl Iterator<Item = char> + '_ {
    let upper = name.chars().flat_map(char::to_uppercase);
    upper.map(|one| if one == 'İ' { 'I' } else { one }).flat_map(char::to_lowercase)
}

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
    fn added_fields(self, table: &TableSchema, partial_images: bool) -> Vec<Field> {
        let first = match self {
            Self::Rows => return Vec::new(),
            Self::Latest => Field::new(DELETED, DataType::Boolean, true),
            Self::Changelog => Field::new(free_name(table, CHANGE_TYPE), DataType::Utf8, true),
        };
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let mut fields = vec![first, Field::new(free_name(table, SEQUENCE), DataType::Int64, true)];
        if self == Self::Changelog {
            fields.push(Field::new(free_name(table, COMMIT_TIMESTAMP), timestamp, true));
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
    fields.extend(layout.added_fields(table, partial_images));
    Ok(Schema::new(fields))
}

/// A NOT NULL column can contain values which become null.
fn may_become_null(kind: &ColumnType, options: TypeOptions) -> bool {
    match kind {
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => {
            options.zero_dates == ZeroDates::Null || options.extreme_dates == ExtremeDates::Null
        }
        ColumnType::Decimal { .. } | ColumnType::Numeric => options.not_numbers == NotNumbers::Null,
        _ => false,
    }
}
