//! `ResultSetDecoder`.

use arrow_array::RecordBatch;
use arrow_pyarrow::PyArrowType;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::errors::server_error;
use super::schema::{parse_table, parse_types};
use crate::mysql::resultset::{self, ResultSetError};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ResultSetDecoder>()
}

#[pyclass(module = "penstock._core")]
struct ResultSetDecoder(resultset::ResultSetDecoder);

#[pymethods]
impl ResultSetDecoder {
    #[new]
    #[pyo3(signature = (table, *, types = "{}", batch_rows = 65536, batch_bytes = 32 * 1024 * 1024))]
    fn new(table: &str, types: &str, batch_rows: usize, batch_bytes: usize) -> PyResult<Self> {
        let (table, types) = (parse_table(table)?, parse_types(types)?);
        Ok(Self(resultset::ResultSetDecoder::new(table, types, batch_rows, batch_bytes)?))
    }

    fn feed(&mut self, py: Python<'_>, data: PyBackedBytes) -> PyResult<Vec<PyArrowType<RecordBatch>>> {
        let batches = py.detach(|| self.0.feed(&data)).map_err(|error| raised(py, error))?;
        Ok(batches.into_iter().map(PyArrowType).collect())
    }

    #[getter]
    fn done(&self) -> bool {
        self.0.done()
    }

    #[getter]
    fn columns_fit(&self) -> bool {
        self.0.columns_fit()
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows()
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<Option<PyArrowType<RecordBatch>>> {
        let batch = py.detach(|| self.0.finish()).map_err(|error| raised(py, error))?;
        Ok(batch.map(PyArrowType))
    }
}

fn raised(py: Python<'_>, error: ResultSetError) -> PyErr {
    match error {
        ResultSetError::Decode(error) => error.into(),
        ResultSetError::Server { code, sqlstate, message } => server_error(py, code, &sqlstate, &message),
    }
}
