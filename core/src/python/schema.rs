//! `arrow_schema`, and arguments that name tables, layouts and the like.

use std::sync::Arc;

use ::arrow_schema::Schema;
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::segment_file::FileArgument;
use super::segment_format::with_format;
use crate::column::{self, Layout, TypeOptions};
use crate::schema::TableSchema;
use crate::segment_format::SegmentFormat;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(schema_of, module)?)?;
    module.add_function(wrap_pyfunction!(first_described, module)?)
}

pub fn parse_table(json: &str) -> PyResult<Arc<TableSchema>> {
    Ok(Arc::new(TableSchema::from_json(json)?))
}

pub fn parse_layout(name: &str) -> PyResult<Layout> {
    Layout::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("layout {name:?}; it is rows, latest or changelog")))
}

/// `penstock.model.schema.TypeOptions.to_json()`.
pub fn parse_types(json: &str) -> PyResult<TypeOptions> {
    TypeOptions::from_json(json).map_err(|error| PyValueError::new_err(error.reason().to_owned()))
}

#[pyfunction(name = "arrow_schema")]
#[pyo3(signature = (table, layout, types = "{}", partial_images = false))]
fn schema_of(table: &str, layout: &str, types: &str, partial_images: bool) -> PyResult<PyArrowType<Schema>> {
    let table = parse_table(table)?;
    let schema =
        column::arrow_schema(&table, None, parse_layout(layout)?, parse_types(types)?, partial_images);
    Ok(PyArrowType(schema.map_err(PyValueError::new_err)?))
}

#[pyfunction]
fn first_described(
    py: Python<'_>,
    table: &str,
    path: FileArgument,
    base: u64,
    start: u64,
    end: u64,
) -> PyResult<Option<String>> {
    let table = parse_table(table)?;
    Ok(py.detach(|| with_format!(&path.0, Format::described_table(&path.0, base, start, end, &table)))?)
}
