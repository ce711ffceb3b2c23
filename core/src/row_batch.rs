//! The rows that a server sends as the answer to a SELECT, gathered for batches of Arrow.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};

use crate::column::{arrow_schema, ColumnBuilder, Layout, TypeOptions};
use crate::error::{DecodeError, Result, ValueError};
use crate::schema::TableSchema;

/// The rows of the batch that is being built.
pub struct RowBatch {
    pub table: Arc<TableSchema>,
    pub builders: Vec<ColumnBuilder>,
    schema: SchemaRef,
    rows_max: usize,
    bytes_max: usize,
    /// Number of rows since the last batch, and bytes of them.
    rows: usize,
    bytes: usize,
    /// All rows, with those of earlier batches.
    pub total: u64,
}

impl RowBatch {
    /// `rows_max`, `bytes_max`: of one batch. A batch has at least one row.
    pub fn new(
        table: Arc<TableSchema>,
        types: TypeOptions,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Self> {
        let fail = |reason: String| DecodeError::of_table(table.name(), reason, 0);
        let schema: Schema = arrow_schema(&table, None, Layout::Rows, types, false).map_err(fail)?;
        let builders: std::result::Result<Vec<_>, String> =
            (0..table.columns.len()).map(|at| ColumnBuilder::of(&table, at, types)).collect();
        let (builders, schema) = (builders.map_err(fail)?, Arc::new(schema));
        Ok(Self { table, builders, schema, rows_max, bytes_max, rows: 0, bytes: 0, total: 0 })
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether a row of so many bytes belongs to the next batch.
    pub fn is_full(&self, bytes: usize) -> bool {
        self.rows > 0 && (self.rows >= self.rows_max || self.bytes.saturating_add(bytes) > self.bytes_max)
    }

    /// Counts a row that was appended to the builders.
    pub fn count(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
        self.total += 1;
    }

    pub fn finish(&mut self, offset: u64) -> Result<RecordBatch> {
        let fail = |reason: String| DecodeError::of_table(self.table.name(), reason, offset);
        let arrays: std::result::Result<Vec<ArrayRef>, ValueError> =
            self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let arrays = arrays.map_err(|error| fail(error.to_string()))?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| fail(error.to_string()))?;
        (self.rows, self.bytes) = (0, 0);
        Ok(batch)
    }
}
