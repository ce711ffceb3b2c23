//! `GtidSet`, `Framer`, `scan_span`.

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::segment_file::FileArgument;
use super::segment_format::Format;
use crate::framing::{Expected, Options, Skip, Spooling};
use crate::gtid::{Gtid, GtidSet as CoreGtidSet};
use crate::segment_format::SegmentFormat;
use crate::segment_framer::{Piece, SegmentFramer};
use crate::span::Place;
use crate::xa::Prepared;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<GtidSet>()?;
    module.add_class::<Framer>()?;
    module.add_function(wrap_pyfunction!(scan_span, module)?)?;
    module.add_function(wrap_pyfunction!(take_back, module)?)?;
    module.add_function(wrap_pyfunction!(digest_span, module)?)?;
    module.add_function(wrap_pyfunction!(whole_statement, module)?)?;
    Ok(())
}

#[pyclass(frozen, module = "penstock._core", from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GtidSet(pub CoreGtidSet);

#[pymethods]
impl GtidSet {
    #[new]
    #[pyo3(signature = (text = ""))]
    fn new(text: &str) -> PyResult<Self> {
        let parsed = text.parse().map_err(|error: crate::error::DecodeError| {
            pyo3::exceptions::PyValueError::new_err(error.reason().to_owned())
        })?;
        Ok(Self(parsed))
    }

    fn __contains__(&self, gtid: &str) -> PyResult<bool> {
        let gtid: Gtid = gtid.parse().map_err(|error: crate::error::DecodeError| {
            pyo3::exceptions::PyValueError::new_err(error.reason().to_owned())
        })?;
        Ok(self.0.contains(&gtid))
    }

    fn issubset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0))
    }

    fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0))
    }

    fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0))
    }

    fn count(&self) -> u64 {
        self.0.count()
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }

    fn __bool__(&self) -> bool {
        !self.0.is_empty()
    }

    fn __richcmp__(&self, other: &Self, operation: CompareOp) -> PyResult<bool> {
        match operation {
            CompareOp::Eq => Ok(self == other),
            CompareOp::Ne => Ok(self != other),
            _ => Err(pyo3::exceptions::PyTypeError::new_err("GTID sets have no order; use issubset")),
        }
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("GtidSet('{}')", self.0)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, pyo3::types::PyType>, (String,)) {
        (py.get_type::<Self>(), (self.0.to_string(),))
    }
}

#[pyclass(module = "penstock._core")]
pub struct Framer(<Format as SegmentFormat>::Framer);

#[pymethods]
impl Framer {
    #[new]
    #[pyo3(signature = (*, offset, segment_size, span_size, server_uuid, executed = None,
                        file = String::new(),
                        position = 0, skip_until_us = None, skip_until = None, expected = None,
                        prepared = Vec::new(), spool = String::new(), spool_number = 0, generation = 0))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only arguments of the Python class")]
    fn new(
        offset: u64,
        segment_size: u64,
        span_size: u64,
        server_uuid: String,
        executed: Option<GtidSet>,
        file: String,
        position: u64,
        skip_until_us: Option<u64>,
        skip_until: Option<(String, u64)>,
        expected: Option<(Option<String>, u64, u64)>,
        prepared: Vec<(String, String, u64, u64)>,
        spool: String,
        spool_number: u64,
        generation: u64,
    ) -> PyResult<Self> {
        let expected = match expected {
            Some((gtid, length, digest)) => {
                let gtid = gtid.map(|text| text.parse::<Gtid>()).transpose()?;
                Some(Expected { gtid, length, digest })
            }
            None => None,
        };
        Ok(Self(Format::framer(Options {
            offset,
            segment_size,
            span_size,
            server_uuid,
            executed: executed.map(|set| set.0),
            source: Place { file, position },
            skip: Skip {
                until_us: skip_until_us,
                until: skip_until.map(|(file, position)| Place { file, position }),
            },
            expected,
            spool: Spooling {
                prepared: prepared
                    .into_iter()
                    .map(|(xid, file, start, length)| Prepared { xid, file, start, length })
                    .collect(),
                folder: spool,
                number: spool_number,
                generation,
            },
        })))
    }

    fn feed<'py>(&mut self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let framer = &mut self.0;
        let pieces = py.detach(|| framer.feed(data))?;
        let list = PyList::empty(py);
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => list.append(PyBytes::new(py, &bytes))?,
                Piece::Spool { name, bytes } => list.append((name, PyBytes::new(py, &bytes)))?,
                Piece::TakenBack { start, end } => list.append((start, end))?,
                Piece::Segment { base, head, entries } => {
                    list.append((base, PyBytes::new(py, &head), entries))?
                }
            }
        }
        Ok(list)
    }

    #[getter]
    fn more(&self) -> bool {
        self.0.more()
    }

    fn cut(&mut self) -> Vec<String> {
        self.0.cut()
    }

    fn roll(&mut self) {
        self.0.roll();
    }

    #[getter]
    fn has_segment(&self) -> bool {
        self.0.has_segment()
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset()
    }

    #[getter]
    fn committed(&self) -> u64 {
        self.0.committed()
    }

    #[getter]
    fn undecided_bytes(&self) -> u64 {
        self.0.undecided_bytes()
    }

    #[getter]
    fn spool_files(&self) -> Vec<String> {
        self.0.spool_files()
    }

    #[getter]
    fn source(&self) -> (String, u64) {
        (self.0.tracker.source.file.clone(), self.0.tracker.source.position)
    }

    #[getter]
    fn executed(&self) -> GtidSet {
        GtidSet(self.0.tracker.executed.clone())
    }

    #[getter]
    fn transactions(&self) -> u64 {
        self.0.tracker.transactions
    }

    #[getter]
    fn events(&self) -> u64 {
        self.0.tracker.events
    }

    #[getter]
    fn dropped(&self) -> u64 {
        self.0.dropped
    }

    #[getter]
    fn incidents(&self) -> u64 {
        self.0.tracker.incidents
    }

    #[getter]
    fn last_commit_us(&self) -> Option<u64> {
        self.0.tracker.last_commit_us
    }

    #[getter]
    fn verified(&self) -> bool {
        self.0.verified
    }

    #[getter]
    fn diverged(&self) -> bool {
        self.0.diverged
    }

    #[getter]
    fn ended(&self) -> bool {
        self.0.ended
    }

    #[getter]
    fn server_error(&self) -> Option<(u16, String, String)> {
        self.0.server_error.clone().map(|error| (error.code, error.sqlstate, error.message))
    }
}

#[pyfunction]
fn digest_span(py: Python<'_>, path: FileArgument, base: u64, start: u64, end: u64) -> PyResult<(u64, u64)> {
    Ok(py.detach(|| Format::digest(&path.0, base, start, end))?)
}

#[pyfunction]
fn take_back(py: Python<'_>, path: &str, base: u64, start: u64, end: u64) -> PyResult<()> {
    Ok(py.detach(|| Format::take_back(path, base, start, end))?)
}

#[pyfunction]
fn whole_statement(
    py: Python<'_>,
    path: FileArgument,
    base: u64,
    offset: u64,
    length_max: u64,
) -> PyResult<Option<String>> {
    Ok(py.detach(|| Format::whole_statement(&path.0, base, offset, length_max))?)
}

#[pyfunction]
#[pyo3(signature = (path, base, start, end, *, open = Vec::new(), file = String::new(), position = 0))]
#[expect(clippy::too_many_arguments, reason = "keyword-only arguments of the Python function")]
fn scan_span(
    py: Python<'_>,
    path: FileArgument,
    base: u64,
    start: u64,
    end: u64,
    open: Vec<u64>,
    file: String,
    position: u64,
) -> PyResult<String> {
    Ok(py.detach(|| Format::index_entry(&path.0, base, start, end, &open, Place { file, position }))?)
}
