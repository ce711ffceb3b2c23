//! `arrow_schema`, and arguments that name tables, layouts and the like.

use std::sync::Arc;

use ::arrow_schema::Schema;
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::column::{self, Layout, ZeroDates};
use crate::schema::TableSchema;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(schema_of, module)?)
}

pub fn parse_table(json: &str) -> PyResult<Arc<TableSchema>> {
    Ok(Arc::new(TableSchema::from_json(json)?))
}

pub fn parse_layout(name: &str) -> PyResult<Layout> {
    Layout::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("layout {name:?}; it is rows, latest or changelog")))
}

pub fn parse_zero_dates(name: &str) -> PyResult<ZeroDates> {
    ZeroDates::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("zero_dates {name:?}; it is null, text or error")))
}

#[pyfunction(name = "arrow_schema")]
#[pyo3(signature = (table, layout, zero_dates = "null"))]
fn schema_of(table: &str, layout: &str, zero_dates: &str) -> PyResult<PyArrowType<Schema>> {
    let table = parse_table(table)?;
    let schema = column::arrow_schema(&table, None, parse_layout(layout)?, parse_zero_dates(zero_dates)?);
    Ok(PyArrowType(schema.map_err(PyValueError::new_err)?))
}
