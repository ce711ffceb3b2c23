//! `RangedFile`, and arguments that name a file.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::segment_file::{self, Fetch, SegmentFile};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RangedFile>()
}

#[pyclass(frozen, module = "penstock._core")]
pub struct RangedFile(Arc<segment_file::RangedFile>);

#[pymethods]
impl RangedFile {
    #[new]
    #[pyo3(signature = (
        name, size, fetch, *,
        start = 0, end = None, block_bytes = 4 << 20, cache_bytes = 32 << 20, local = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only arguments of the Python class")]
    fn new(
        name: String,
        size: u64,
        fetch: Py<PyAny>,
        start: u64,
        end: Option<u64>,
        block_bytes: u64,
        cache_bytes: u64,
        local: Option<String>,
    ) -> PyResult<Self> {
        let part = start..end.unwrap_or(size);
        if part.end < part.start {
            return Err(PyValueError::new_err("the part ends before it starts"));
        }
        let fetch = Box::new(Callback(fetch));
        let file = segment_file::RangedFile::new(name, size, part, block_bytes, cache_bytes, fetch);
        Ok(Self(Arc::new(file.with_local(local))))
    }
}

/// Calls `fetch(start, end)`. What it raises is the error that the reader of the file gets.
struct Callback(Py<PyAny>);

impl Fetch for Callback {
    fn fetch(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        Python::attach(|py| {
            let found = self.0.bind(py).call1((range.start, range.end))?;
            if let Ok(bytes) = found.cast::<PyBytes>() {
                return Ok(bytes.as_bytes().to_vec());
            }
            let copied = PyMemoryView::from(&found)?.call_method0("tobytes")?;
            Ok(copied.cast::<PyBytes>()?.as_bytes().to_vec())
        })
        .map_err(|error: PyErr| io::Error::other(error))
    }
}

/// A path, or a `RangedFile`.
pub struct FileArgument(pub SegmentFile);

impl<'py> FromPyObject<'_, 'py> for FileArgument {
    type Error = PyErr;

    fn extract(argument: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(file) = argument.cast::<RangedFile>() {
            return Ok(Self(SegmentFile::Ranged(file.get().0.clone())));
        }
        Ok(Self(SegmentFile::Local(argument.extract()?)))
    }
}

/// Files, bases and offsets of the events to read first.
pub fn preamble(argument: Vec<(FileArgument, u64, u64)>) -> Vec<(SegmentFile, u64, u64)> {
    argument.into_iter().map(|(file, base, offset)| (file.0, base, offset)).collect()
}
