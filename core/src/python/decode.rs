//! `RangeDecoder`, `Outline`, `LatestReducer`, `KeySet`.

use std::sync::Mutex;

use arrow_array::RecordBatch;
use arrow_pyarrow::{PyArrowType, ToPyArrow};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::schema::{parse_layout, parse_table, parse_types};
use super::segment_file::{preamble as preamble_of, FileArgument};
use super::segment_format::with_format;
use crate::batches::Batches;
use crate::column::Layout;
use crate::outline;
use crate::output::{Moved, Options, BATCH_BYTES, BATCH_ROWS};
use crate::reduce;
use crate::seen_keys::SharedKeys;
use crate::segment_format::SegmentFormat;
use crate::split::Split;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RangeDecoder>()?;
    module.add_class::<Outline>()?;
    module.add_class::<LatestReducer>()?;
    module.add_class::<KeySet>()
}

/// A lock fails only if a thread panicked while it had it. The core never panics on input.
///
/// Who waits for one of these locks must be detached from the interpreter: its holder may need the
/// interpreter to fetch bytes of a file.
fn broken<T>(_: T) -> PyErr {
    PyRuntimeError::new_err("the decoder failed before")
}

#[pyclass(module = "penstock._core")]
struct RangeDecoder {
    decoder: Mutex<Box<dyn Batches + Send>>,
}

#[pymethods]
impl RangeDecoder {
    #[new]
    #[pyo3(signature = (
        table, path, base, start, end, *, preamble = Vec::new(), positions = None,
        layout = "changelog", columns = None,
        before_images = true, foreign_key_checks = false, identity_images = false, bucket = None,
        exclude = None, seen = None, types = "{}",
        partial_images = false, moved = "refused", defaults = None, base_columns = None,
        batch_rows = BATCH_ROWS, batch_bytes = BATCH_BYTES
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        table: &str,
        path: FileArgument,
        base: u64,
        start: u64,
        end: u64,
        preamble: Vec<(FileArgument, u64, u64)>,
        positions: Option<&[u8]>,
        layout: &str,
        columns: Option<Vec<String>>,
        before_images: bool,
        foreign_key_checks: bool,
        identity_images: bool,
        bucket: Option<(u32, u32)>,
        exclude: Option<String>,
        seen: Option<Bound<'_, KeySet>>,
        types: &str,
        partial_images: bool,
        moved: &str,
        defaults: Option<PyArrowType<RecordBatch>>,
        base_columns: Option<Vec<String>>,
        batch_rows: usize,
        batch_bytes: usize,
    ) -> PyResult<Self> {
        if let Some((share, count)) = bucket.filter(|(share, count)| share >= count) {
            return Err(PyValueError::new_err(format!("bucket {share} of {count}; it must be less")));
        }
        let layout = parse_layout(layout)?;
        if layout == Layout::Rows {
            return Err(PyValueError::new_err("layout \"rows\" is for result sets"));
        }
        let moved = match moved {
            "refused" => Moved::Refused,
            "taken" => Moved::Taken,
            "only" => Moved::Only,
            _ => return Err(PyValueError::new_err(format!("moved {moved:?}"))),
        };
        let types = parse_types(types)?;
        let defaults = defaults.map(|batch| batch.0);
        let options = Options {
            layout,
            columns,
            before_images,
            foreign_key_checks,
            identity_images,
            bucket,
            types,
            partial_images,
            moved,
            defaults,
            base: base_columns,
            batch_rows,
            batch_bytes,
        };
        let table = parse_table(table)?;
        let positions = positions.map(numbers).transpose()?;
        let split = Split { file: path.0, base, start, end, preamble: preamble_of(preamble), positions };
        let seen = match seen {
            Some(_) if layout != Layout::Latest => {
                return Err(PyValueError::new_err("seen is for layout \"latest\""));
            }
            Some(keys) => {
                let keys = keys.get();
                py.detach(|| Ok::<_, PyErr>(keys.keys.lock().map_err(broken)?.shared()))?
            }
            None => SharedKeys::default(),
        };
        let decoder = py.detach(|| {
            with_format!(&split.file, Format::decoder(table, &split, exclude.as_deref(), &options, seen))
        })?;
        Ok(Self { decoder: Mutex::new(decoder) })
    }

    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let schema = py.detach(|| Ok::<_, PyErr>(self.decoder.lock().map_err(broken)?.schema()))?;
        schema.to_pyarrow(py)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyArrowType<RecordBatch>>> {
        py.detach(|| Ok(self.decoder.lock().map_err(broken)?.next_batch()?.map(PyArrowType)))
    }
}

fn numbers(bytes: &[u8]) -> PyResult<Vec<u64>> {
    let numbers = bytes.chunks(8).map(|number| number.try_into().map(u64::from_le_bytes));
    numbers
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| PyValueError::new_err("positions have eight bytes each"))
}

#[pyclass(frozen, module = "penstock._core")]
struct Outline {
    outline: outline::Outline,
}

#[pymethods]
impl Outline {
    #[staticmethod]
    #[pyo3(signature = (tables, path, base, start, end, *, preamble = Vec::new()))]
    fn of(
        py: Python<'_>,
        tables: Vec<(String, String)>,
        path: FileArgument,
        base: u64,
        start: u64,
        end: u64,
        preamble: Vec<(FileArgument, u64, u64)>,
    ) -> PyResult<Option<Self>> {
        let split =
            Split { file: path.0, base, start, end, preamble: preamble_of(preamble), positions: None };
        let outline = py.detach(|| with_format!(&split.file, Format::outline(&tables, &split)))?;
        Ok(outline.map(|outline| Self { outline }))
    }

    fn positions<'py>(&self, py: Python<'py>, table: usize, start: u64, end: u64) -> Bound<'py, PyBytes> {
        let found = self.outline.positions(table, start, end);
        PyBytes::new(py, &found.iter().flat_map(|position| position.to_le_bytes()).collect::<Vec<u8>>())
    }
}

#[pyclass(module = "penstock._core")]
struct LatestReducer {
    reducer: Mutex<reduce::LatestReducer>,
}

#[pymethods]
impl LatestReducer {
    #[new]
    #[pyo3(signature = (table, *, types = "{}"))]
    fn new(table: &str, types: &str) -> PyResult<Self> {
        parse_types(types)?;
        Ok(Self { reducer: Mutex::new(reduce::LatestReducer::new(parse_table(table)?)?) })
    }

    fn push(&self, py: Python<'_>, batch: PyArrowType<RecordBatch>) -> PyResult<()> {
        py.detach(|| Ok(self.reducer.lock().map_err(broken)?.push(batch.0)?))
    }

    fn complete(&self, py: Python<'_>, batch: PyArrowType<RecordBatch>) -> PyResult<()> {
        py.detach(|| Ok(self.reducer.lock().map_err(broken)?.complete(batch.0)?))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<Vec<PyArrowType<RecordBatch>>> {
        let batches = py.detach(|| -> PyResult<_> { Ok(self.reducer.lock().map_err(broken)?.finish()?) })?;
        Ok(batches.into_iter().map(PyArrowType).collect())
    }
}

#[pyclass(frozen, module = "penstock._core")]
struct KeySet {
    keys: Mutex<reduce::KeySet>,
}

#[pymethods]
impl KeySet {
    #[new]
    #[pyo3(signature = (table, *, types = "{}", partial_images = false, defaults = None))]
    fn new(
        table: &str,
        types: &str,
        partial_images: bool,
        defaults: Option<PyArrowType<RecordBatch>>,
    ) -> PyResult<Self> {
        let defaults = defaults.map(|batch| batch.0);
        let keys = reduce::KeySet::new(parse_table(table)?, parse_types(types)?, partial_images, defaults)?;
        Ok(Self { keys: Mutex::new(keys) })
    }

    #[pyo3(signature = (path, base, start, end, *, preamble = Vec::new(), exclude = None))]
    #[allow(clippy::too_many_arguments)]
    fn add_split(
        &self,
        py: Python<'_>,
        path: FileArgument,
        base: u64,
        start: u64,
        end: u64,
        preamble: Vec<(FileArgument, u64, u64)>,
        exclude: Option<String>,
    ) -> PyResult<()> {
        let split =
            Split { file: path.0, base, start, end, preamble: preamble_of(preamble), positions: None };
        py.detach(|| {
            let mut keys = self.keys.lock().map_err(broken)?;
            Ok(with_format!(&split.file, Format::add_keys(&mut keys, &split, exclude.as_deref()))?)
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| Ok(self.keys.lock().map_err(broken)?.len()))
    }

    fn drop_from(
        &self,
        py: Python<'_>,
        batch: PyArrowType<RecordBatch>,
    ) -> PyResult<PyArrowType<RecordBatch>> {
        py.detach(|| Ok(PyArrowType(self.keys.lock().map_err(broken)?.drop_from(&batch.0)?)))
    }
}
