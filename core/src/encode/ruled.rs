//! Tables whose rows are changed by rules (`transforms`) on their way into messages.
//!
//! The rules are functions of Arrow batches, which the caller has. So the columns that they look at are
//! collected from row images, and what they make of them takes the place of those columns in the images
//! (`made.rs`). All other columns go from the log's image into the message, without a look at their values.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::arrow_image::arrow_column;
use super::columns::{column, Table};
use super::image::{Image, Place};
use super::route::Route;
use crate::column::{free_name, ColumnBuilder, TypeOptions, CHANGE_TYPE, SEQUENCE};
use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::output::Change;
use crate::schema::TableSchema;
use crate::table_map::TableMap;

/// The column with the number of a collected row.
pub const ROW: &str = "_penstock_row";

/// Where a column of a table's messages comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The column of the source. None: the rules compute it.
    pub source: Option<String>,
    /// The rules make its values: of those of `source`, if it is given.
    pub made: bool,
}

/// What rules make of a table's rows.
#[derive(Debug, Clone)]
pub struct Ruled {
    /// The table as messages show it: its name, and a column for each origin.
    pub schema: Arc<TableSchema>,
    pub origins: Vec<Origin>,
    /// The columns of the source that the rules look at, and their types in Arrow.
    pub needed: Vec<String>,
    pub types: TypeOptions,
    /// Whether the rules may leave out rows.
    pub drops: bool,
}

/// The rules of a table, for the row images of one table map.
pub struct RuledTable {
    pub rules: Arc<Ruled>,
    /// The table of the messages. Its map fits images that have the columns of `origins`.
    pub target: Table,
    pub origins: Vec<PlaceOf>,
}

/// Where a column of an image comes from. `source`: the column's position in the source's image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceOf {
    Kept { source: usize },
    Made { source: Option<usize> },
}

impl Ruled {
    /// For the images of a table of the source.
    pub fn of(self: &Arc<Self>, table: &Table, route: Option<&Route>) -> Result<RuledTable> {
        let fail = |reason: String| DecodeError::of_table(table.schema.name(), reason, 0);
        let position = |name: &String| {
            table.schema.position(name).ok_or_else(|| fail(format!("there is no column `{name}`")))
        };
        let (mut columns, mut in_map, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for (of_schema, origin) in self.schema.columns.iter().zip(&self.origins) {
            let source = origin.source.as_ref().map(position).transpose()?;
            let (made, of_map) = match (origin.made, source) {
                (false, Some(source)) => {
                    let mut of_map = table.map.columns[source].clone();
                    of_map.name = Some(of_schema.name.clone());
                    origins.push(PlaceOf::Kept { source });
                    (column(of_schema, &of_map).map_err(fail)?, of_map)
                }
                _ => {
                    origins.push(PlaceOf::Made { source });
                    arrow_column(of_schema).map_err(fail)?
                }
            };
            columns.push(made);
            in_map.push(of_map);
        }
        let (database, name) = (self.schema.database.clone(), self.schema.table.clone());
        let key = self.schema.key_positions();
        let map = TableMap {
            table_id: table.map.table_id,
            database: database.clone(),
            table: name.clone(),
            columns: in_map,
            primary_key: Some(key.clone()),
            required: Vec::new(),
        };
        let target = Table {
            number: table.number,
            database,
            name,
            columns,
            key,
            map,
            schema: self.schema.clone(),
            route: None,
            omitted: Vec::new(),
        };
        Ok(RuledTable { rules: self.clone(), target: target.routed(route), origins })
    }
}

/// Rows for the rules: the needed columns, `_change_type`, `_sequence` and `ROW`.
pub struct Collector {
    builders: Vec<ColumnBuilder>,
    /// The position of each builder's column.
    positions: Vec<usize>,
    fields: Vec<Field>,
    changes: Vec<Change>,
    sequences: Vec<i64>,
    /// Whether a needed column was missing in an image.
    pub incomplete: bool,
}

impl Collector {
    /// `schema`: of the source's table.
    pub fn new(schema: &TableSchema, needed: &[String], types: TypeOptions) -> Result<Self> {
        let fail = |reason: String| DecodeError::of_table(schema.name(), reason, 0);
        let (mut builders, mut positions, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        for name in needed {
            let position =
                schema.position(name).ok_or_else(|| fail(format!("there is no column `{name}`")))?;
            let builder = ColumnBuilder::of(schema, position, types).map_err(fail)?;
            fields.push(Field::new(name, builder.data_type(), true));
            builders.push(builder);
            positions.push(position);
        }
        fields.push(Field::new(free_name(schema, CHANGE_TYPE), DataType::Utf8, true));
        fields.push(Field::new(free_name(schema, SEQUENCE), DataType::Int64, true));
        fields.push(Field::new(ROW, DataType::Int64, true));
        let (changes, sequences) = (Vec::new(), Vec::new());
        Ok(Self { builders, positions, fields, changes, sequences, incomplete: false })
    }

    pub fn set_style(&mut self, style: Style) {
        self.builders.iter_mut().for_each(|builder| builder.set_json_style(style));
    }

    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Appends a row. A column that its image lacks is null.
    pub fn push(&mut self, table: &Table, image: &Image<'_>, change: Change, sequence: u64) -> Result<()> {
        for (builder, index) in self.builders.iter_mut().zip(&self.positions) {
            if image.place(*index) == Place::Absent {
                self.incomplete = true;
                builder.append_null();
            } else {
                image.send(&table.map, *index, builder)?;
            }
        }
        self.changes.push(change);
        self.sequences.push(sequence as i64);
        Ok(())
    }

    /// The rows so far. It is empty afterwards.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let fail = |reason: String| DecodeError::new(reason, 0);
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.fields.len());
        for builder in &mut self.builders {
            arrays.push(builder.finish().map_err(|error| fail(error.to_string()))?);
        }
        arrays.push(Arc::new(Change::names(&self.changes)));
        let numbers = 0..self.sequences.len() as i64;
        arrays.push(Arc::new(Int64Array::from(std::mem::take(&mut self.sequences))));
        arrays.push(Arc::new(Int64Array::from_iter_values(numbers)));
        self.changes.clear();
        self.incomplete = false;
        let schema = Arc::new(Schema::new(self.fields.clone()));
        RecordBatch::try_new(schema, arrays).map_err(|error| fail(error.to_string()))
    }
}
