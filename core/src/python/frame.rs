//! `GtidSet`, `Framer`, `scan_span`.

use pyo3::basic::CompareOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::segment_file::FileArgument;
use super::segment_format::{with_format, Named};
use crate::framing::{Expected, Options, Skip, Spooling};
use crate::mysql::binlog::MySqlBinlog;
use crate::mysql::frame;
use crate::mysql::gtid::{Gtid, GtidSet as CoreGtidSet};
use crate::mysql::span::{Place, Tracker};
use crate::mysql::xa::Prepared;
use crate::segment_format::SegmentFormat;
use crate::segment_framer::{Piece, SegmentFramer};
use crate::typed_rows::{RowsFramer, TypedRows};

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
pub struct Framer(Framing);

/// A framer of each format.
enum Framing {
    MySqlBinlog(Box<frame::Framer>),
    TypedRows(Box<RowsFramer>),
}

impl Framing {
    fn framer(&mut self) -> &mut dyn SegmentFramer {
        match self {
            Self::MySqlBinlog(framer) => &mut **framer,
            Self::TypedRows(framer) => &mut **framer,
        }
    }

    fn tracker(&self) -> &Tracker {
        match self {
            Self::MySqlBinlog(framer) => &framer.tracker,
            Self::TypedRows(framer) => &framer.tracker,
        }
    }

    /// None: the format has no connection to a server.
    fn of_server(&self) -> Option<&frame::Framer> {
        match self {
            Self::MySqlBinlog(framer) => Some(framer),
            Self::TypedRows(_) => None,
        }
    }
}

#[pymethods]
impl Framer {
    #[new]
    #[pyo3(signature = (*, offset, segment_size, span_size, server_uuid, executed = None,
                        file = String::new(),
                        position = 0, skip_until_us = None, skip_until = None, expected = None,
                        prepared = Vec::new(), spool = String::new(), spool_number = 0, generation = 0,
                        segment_format = "mysql-binlog"))]
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
        segment_format: &str,
    ) -> PyResult<Self> {
        let Some(format) = Named::of(segment_format) else {
            return Err(PyValueError::new_err(format!("there is no segment format {segment_format:?}")));
        };
        let expected = match expected {
            Some((gtid, length, digest)) => {
                let gtid = gtid.map(|text| text.parse::<Gtid>()).transpose()?;
                Some(Expected { gtid, length, digest })
            }
            None => None,
        };
        let options = Options {
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
        };
        Ok(Self(match format {
            Named::MySqlBinlog => Framing::MySqlBinlog(Box::new(MySqlBinlog::framer(options))),
            Named::TypedRows => Framing::TypedRows(Box::new(TypedRows::framer(options))),
        }))
    }

    fn feed<'py>(&mut self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let framer = &mut self.0;
        let pieces = py.detach(|| framer.framer().feed(data))?;
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
    fn more(&mut self) -> bool {
        self.0.framer().more()
    }

    fn cut(&mut self) -> Vec<String> {
        self.0.framer().cut()
    }

    fn roll(&mut self) {
        self.0.framer().roll();
    }

    #[getter]
    fn has_segment(&mut self) -> bool {
        self.0.framer().has_segment()
    }

    #[getter]
    fn offset(&mut self) -> u64 {
        self.0.framer().offset()
    }

    #[getter]
    fn committed(&mut self) -> u64 {
        self.0.framer().committed()
    }

    #[getter]
    fn undecided_bytes(&self) -> u64 {
        self.0.of_server().map_or(0, frame::Framer::undecided_bytes)
    }

    #[getter]
    fn spool_files(&self) -> Vec<String> {
        self.0.of_server().map_or_else(Vec::new, frame::Framer::spool_files)
    }

    #[getter]
    fn source(&self) -> (String, u64) {
        let source = &self.0.tracker().source;
        (source.file.clone(), source.position)
    }

    #[getter]
    fn executed(&self) -> GtidSet {
        GtidSet(self.0.tracker().executed.clone())
    }

    #[getter]
    fn transactions(&self) -> u64 {
        self.0.tracker().transactions
    }

    #[getter]
    fn events(&self) -> u64 {
        self.0.tracker().events
    }

    #[getter]
    fn dropped(&self) -> u64 {
        self.0.of_server().map_or(0, |framer| framer.dropped)
    }

    #[getter]
    fn incidents(&self) -> u64 {
        self.0.tracker().incidents
    }

    #[getter]
    fn last_commit_us(&self) -> Option<u64> {
        self.0.tracker().last_commit_us
    }

    #[getter]
    fn verified(&self) -> bool {
        self.0.of_server().is_some_and(|framer| framer.verified)
    }

    #[getter]
    fn diverged(&self) -> bool {
        self.0.of_server().is_some_and(|framer| framer.diverged)
    }

    #[getter]
    fn ended(&self) -> bool {
        self.0.of_server().is_some_and(|framer| framer.ended)
    }

    #[getter]
    fn server_error(&self) -> Option<(u16, String, String)> {
        let error = self.0.of_server()?.server_error.clone()?;
        Some((error.code, error.sqlstate, error.message))
    }
}

#[pyfunction]
fn digest_span(py: Python<'_>, path: FileArgument, base: u64, start: u64, end: u64) -> PyResult<(u64, u64)> {
    Ok(py.detach(|| with_format!(&path.0, Format::digest(&path.0, base, start, end)))?)
}

#[pyfunction]
fn take_back(py: Python<'_>, path: &str, base: u64, start: u64, end: u64) -> PyResult<()> {
    Ok(py.detach(|| with_format!(&path.into(), Format::take_back(path, base, start, end)))?)
}

#[pyfunction]
fn whole_statement(
    py: Python<'_>,
    path: FileArgument,
    base: u64,
    offset: u64,
    length_max: u64,
) -> PyResult<Option<String>> {
    Ok(py.detach(|| with_format!(&path.0, Format::whole_statement(&path.0, base, offset, length_max)))?)
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
    let place = Place { file, position };
    Ok(py.detach(|| with_format!(&path.0, Format::index_entry(&path.0, base, start, end, &open, place)))?)
}
