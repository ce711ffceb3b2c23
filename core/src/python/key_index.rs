//! `KeyIndex`.

use std::sync::RwLock;

use arrow_array::cast::AsArray;
use arrow_array::{make_array, Array, Int64Array, RecordBatch};
use arrow_data::ArrayData;
use arrow_pyarrow::{PyArrowType, ToPyArrow};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::key_index;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<KeyIndex>()
}

#[pyclass(frozen, module = "penstock._core")]
struct KeyIndex {
    index: RwLock<key_index::KeyIndex>,
}

/// A lock fails only if a thread panicked while it had it. The core never panics on input.
fn broken<T>(_: T) -> PyErr {
    PyRuntimeError::new_err("the index failed before")
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl KeyIndex {
    #[new]
    fn new() -> Self {
        Self { index: RwLock::default() }
    }

    fn add(
        &self,
        py: Python<'_>,
        keys: PyArrowType<RecordBatch>,
        sequences: PyArrowType<ArrayData>,
    ) -> PyResult<()> {
        py.detach(|| {
            let array = make_array(sequences.0);
            let sequences = array.as_primitive_opt().ok_or_else(|| refused("sequences are int64"))?;
            self.index.write().map_err(broken)?.add(&keys.0, sequences).map_err(refused)
        })
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        rows: PyArrowType<RecordBatch>,
        sequence: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found =
            py.detach(|| self.index.read().map_err(broken)?.find(&rows.0, sequence).map_err(refused))?;
        Int64Array::from(found).to_data().to_pyarrow(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| Ok(self.index.read().map_err(broken)?.len()))
    }
}
