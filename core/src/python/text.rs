//! `row_hashes`, `row_texts`, `row_buckets`.

use arrow_array::Array;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_data::ArrayData;
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

use super::schema::{parse_table, parse_types};
use crate::column::TypeOptions;
use crate::schema::TableSchema;
use crate::text::{RowText, TextColumn};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(row_hashes, module)?)?;
    module.add_function(wrap_pyfunction!(row_texts, module)?)?;
    module.add_function(wrap_pyfunction!(row_buckets, module)?)
}

fn row_text(
    schema: &TableSchema,
    batch: &RecordBatch,
    columns: &[String],
    types: TypeOptions,
) -> Result<RowText, String> {
    let columns = columns.iter().map(|name| {
        let position =
            schema.position(name).ok_or_else(|| format!("{} has no column `{name}`", schema.name()))?;
        let column = &schema.columns[position];
        Ok(TextColumn {
            name,
            column_type: &column.kind,
            fsp: column.fsp.unwrap_or(0).into(),
            options: types.of_column(schema, position),
            element: column.element.as_deref(),
        })
    });
    RowText::new(batch, &columns.collect::<Result<Vec<_>, String>>()?)
}

fn compute(
    py: Python<'_>,
    table: &str,
    batch: PyArrowType<RecordBatch>,
    columns: Vec<String>,
    types: &str,
    work: impl FnOnce(RowText) -> Result<ArrayRef, String> + Send,
) -> PyResult<PyArrowType<ArrayData>> {
    let (schema, types) = (parse_table(table)?, parse_types(types)?);
    py.detach(|| row_text(&schema, &batch.0, &columns, types).and_then(work))
        .map(|array| PyArrowType(array.to_data()))
        .map_err(PyValueError::new_err)
}

#[pyfunction]
#[pyo3(signature = (table, batch, columns, types = "{}"))]
fn row_hashes(
    py: Python<'_>,
    table: &str,
    batch: PyArrowType<RecordBatch>,
    columns: Vec<String>,
    types: &str,
) -> PyResult<PyArrowType<ArrayData>> {
    compute(py, table, batch, columns, types, |rows| Ok(Arc::new(rows.hashes())))
}

#[pyfunction]
#[pyo3(signature = (table, batch, columns, types = "{}"))]
fn row_texts(
    py: Python<'_>,
    table: &str,
    batch: PyArrowType<RecordBatch>,
    columns: Vec<String>,
    types: &str,
) -> PyResult<PyArrowType<ArrayData>> {
    compute(py, table, batch, columns, types, |rows| Ok(Arc::new(rows.texts())))
}

#[pyfunction]
#[pyo3(signature = (table, batch, columns, *, width = 0, count = 0, types = "{}"))]
fn row_buckets(
    py: Python<'_>,
    table: &str,
    batch: PyArrowType<RecordBatch>,
    columns: Vec<String>,
    width: u64,
    count: u32,
    types: &str,
) -> PyResult<PyArrowType<ArrayData>> {
    compute(py, table, batch, columns, types, move |rows| match width {
        0 => Ok(Arc::new(rows.shares(count))),
        _ => match rows.ranges(width) {
            Some(numbers) => Ok(Arc::new(numbers)),
            None => Err("`width` needs one integer column that is never NULL".into()),
        },
    })
}
