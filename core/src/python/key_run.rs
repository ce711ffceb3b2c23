//! `KeyRunWriter`, `KeyRun` and `merge_key_runs`.

use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{make_array, Array, Int32Array, Int64Array, RecordBatch};
use arrow_data::ArrayData;
use arrow_pyarrow::{PyArrowType, ToPyArrow};
use hashbrown::HashMap;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use roaring::RoaringTreemap;

use super::errors::os_error;
use crate::key_run::{self, RunError};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<KeyRunWriter>()?;
    module.add_class::<KeyRun>()?;
    module.add_function(wrap_pyfunction!(merge_key_runs, module)?)
}

impl From<RunError> for PyErr {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Io { path, cause } => os_error(&path, &cause),
            refused => PyValueError::new_err(refused.to_string()),
        }
    }
}

#[pyclass(frozen, module = "penstock._core")]
struct KeyRunWriter {
    /// None: it is finished, or has failed.
    writer: Mutex<Option<key_run::KeyRunWriter>>,
}

impl KeyRunWriter {
    fn take(&self) -> PyResult<key_run::KeyRunWriter> {
        let taken = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| PyValueError::new_err("the writer is finished, or has failed"))
    }

    /// Runs one step. The writer is gone if it fails.
    fn step(&self, step: impl FnOnce(&mut key_run::KeyRunWriter) -> key_run::Result<()>) -> PyResult<()> {
        let mut guard = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = guard.take();
        let mut writer =
            taken.ok_or_else(|| PyValueError::new_err("the writer is finished, or has failed"))?;
        step(&mut writer)?;
        *guard = Some(writer);
        Ok(())
    }
}

#[pymethods]
impl KeyRunWriter {
    #[new]
    #[pyo3(signature = (path, seed, memory_max = 64 << 20))]
    fn new(path: &str, seed: u64, memory_max: u64) -> Self {
        Self { writer: Mutex::new(Some(key_run::KeyRunWriter::new(path, seed, memory_max))) }
    }

    fn add(&self, py: Python<'_>, keys: PyArrowType<RecordBatch>, file: u32, first_row: u64) -> PyResult<()> {
        py.detach(|| self.step(|writer| writer.add(&keys.0, file, first_row)))
    }

    fn add_rows(
        &self,
        py: Python<'_>,
        keys: PyArrowType<RecordBatch>,
        file: u32,
        rows: PyArrowType<ArrayData>,
    ) -> PyResult<()> {
        py.detach(|| {
            let array = make_array(rows.0);
            let rows = array.as_primitive_opt().ok_or_else(|| PyValueError::new_err("rows are int64"))?;
            self.step(|writer| writer.add_rows(&keys.0, file, rows))
        })
    }

    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| Ok(self.take()?.finish()?))
    }
}

#[pyclass(frozen, module = "penstock._core")]
struct KeyRun {
    run: key_run::KeyRun,
}

type Columns<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

#[pymethods]
impl KeyRun {
    #[new]
    fn new(py: Python<'_>, path: &str) -> PyResult<Self> {
        py.detach(|| Ok(Self { run: key_run::KeyRun::open(path)? }))
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.run.seed()
    }

    fn __len__(&self) -> usize {
        self.run.len() as usize
    }

    fn find<'py>(&self, py: Python<'py>, keys: PyArrowType<RecordBatch>) -> PyResult<Columns<'py>> {
        let found = py.detach(|| self.run.find(&keys.0))?;
        Ok((
            Int64Array::from(found.keys).to_data().to_pyarrow(py)?,
            Int32Array::from(found.files).to_data().to_pyarrow(py)?,
            Int64Array::from(found.rows).to_data().to_pyarrow(py)?,
        ))
    }

    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| Ok(self.run.verify()?))
    }
}

#[pyfunction]
#[pyo3(signature = (runs, to, files = None, drop = None))]
fn merge_key_runs(
    py: Python<'_>,
    runs: Vec<String>,
    to: &str,
    files: Option<Vec<Option<std::collections::HashMap<u32, u32>>>>,
    drop: Option<Bound<'_, PyDict>>,
) -> PyResult<u64> {
    let mut bitmaps = HashMap::new();
    for (file, bytes) in drop.iter().flatten() {
        let bytes: &[u8] = bytes.extract()?;
        let rows = RoaringTreemap::deserialize_from(bytes)
            .map_err(|error| PyValueError::new_err(format!("a bitmap of rows is damaged: {error}")))?;
        bitmaps.insert(file.extract()?, rows);
    }
    py.detach(|| {
        let files = files.unwrap_or_else(|| vec![None; runs.len()]);
        if files.len() != runs.len() {
            return Err(PyValueError::new_err("`files` has one item for each run"));
        }
        let inputs = runs.iter().zip(files).map(|(path, files)| {
            let files = files.map(|files| files.into_iter().collect());
            Ok(key_run::Input { run: key_run::KeyRun::open(path)?, files })
        });
        Ok(key_run::merge(&inputs.collect::<PyResult<Vec<_>>>()?, to, &bitmaps)?)
    })
}
