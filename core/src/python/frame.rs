//! `Framer`, `scan_span`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::segment_file::FileArgument;
use super::segment_format::{with_format, with_named, Named};
use crate::framing::{Expected, Options, Prepared, Skip, Spooling};
use crate::segment_format::SegmentFormat;
use crate::segment_framer::{Piece, SegmentFramer};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Framer>()?;
    module.add_function(wrap_pyfunction!(scan_span, module)?)?;
    module.add_function(wrap_pyfunction!(take_back, module)?)?;
    module.add_function(wrap_pyfunction!(digest_span, module)?)?;
    module.add_function(wrap_pyfunction!(whole_statement, module)?)?;
    Ok(())
}

#[pyclass(module = "penstock._core")]
pub struct Framer(Box<dyn SegmentFramer + Send + Sync>);

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
        executed: Option<&str>,
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
        let prepared = prepared.into_iter();
        let prepared = prepared.map(|(xid, file, start, length)| Prepared { xid, file, start, length });
        let spool =
            Spooling { prepared: prepared.collect(), folder: spool, number: spool_number, generation };
        with_named!(format, {
            let expected = match expected {
                Some((id, length, digest)) => {
                    let id = id.map(|text| text.parse()).transpose()?;
                    Some(Expected { id, length, digest })
                }
                None => None,
            };
            let framer = Format::framer(Options {
                offset,
                segment_size,
                span_size,
                server_uuid,
                executed: executed.map(str::parse).transpose()?,
                source: (file, position).into(),
                skip: Skip { until_us: skip_until_us, until: skip_until.map(Into::into) },
                expected,
                spool,
            });
            Ok(Self(Box::new(framer)))
        })
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
        self.0.progress().undecided_bytes
    }

    #[getter]
    fn spool_files(&self) -> Vec<String> {
        self.0.spool_files()
    }

    #[getter]
    fn source(&self) -> (String, u64) {
        self.0.source()
    }

    #[getter]
    fn executed(&self) -> String {
        self.0.executed()
    }

    #[getter]
    fn transactions(&self) -> u64 {
        self.0.progress().transactions
    }

    #[getter]
    fn events(&self) -> u64 {
        self.0.progress().events
    }

    #[getter]
    fn dropped(&self) -> u64 {
        self.0.progress().dropped
    }

    #[getter]
    fn incidents(&self) -> u64 {
        self.0.progress().incidents
    }

    #[getter]
    fn last_commit_us(&self) -> Option<u64> {
        self.0.progress().last_commit_us
    }

    #[getter]
    fn verified(&self) -> bool {
        self.0.progress().verified
    }

    #[getter]
    fn diverged(&self) -> bool {
        self.0.progress().diverged
    }

    #[getter]
    fn ended(&self) -> bool {
        self.0.progress().ended
    }

    #[getter]
    fn server_error(&self) -> Option<(u16, String, String)> {
        self.0.progress().server_error
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
    Ok(py.detach(|| {
        with_format!(&path.0, Format::index_entry(&path.0, base, start, end, &open, (file, position).into()))
    })?)
}
