//! `PgArrivals`, `PgBatch`, `PgStreams`, `PgTranslator`, `PgCopyDecoder`.

use arrow_array::RecordBatch;
use arrow_pyarrow::PyArrowType;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::errors::os_error;
use super::schema::{parse_table, parse_types};
use crate::error::DecodeError;
use crate::pgoutput::arrivals::{Arrivals, Batch};
use crate::pgoutput::copy::CopyDecoder;
use crate::pgoutput::message::Message;
use crate::pgoutput::streamed::{Failed, Part, Streams};
use crate::pgoutput::translator::{Described, Root, Said, Translator};
use crate::pgoutput::types::{self, PgType};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PgArrivals>()?;
    module.add_class::<PgBatch>()?;
    module.add_class::<PgStreams>()?;
    module.add_class::<PgTranslator>()?;
    module.add_class::<PgCopyDecoder>()?;
    module.add_function(wrap_pyfunction!(pg_column, module)?)?;
    module.add_function(wrap_pyfunction!(pg_reads_binary, module)?)?;
    module.add_function(wrap_pyfunction!(pg_relation, module)?)?;
    Ok(())
}

/// The columns of a message that describes a table: name, whether rows before a change have it, type and
/// modifier.
#[pyfunction]
fn pg_relation(message: &[u8]) -> PyResult<Vec<(String, bool, u32, i32)>> {
    let Message::Relation(relation) = Message::parse(message, 0)? else {
        return Err(DecodeError::new("this message describes no table", 0).into());
    };
    let columns = relation.columns.iter();
    let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(columns.map(|one| (name(one.name), one.is_key, one.type_id, one.modifier)).collect())
}

/// Whether the binary form of a type's values is known.
#[pyfunction]
fn pg_reads_binary(kind: &str) -> PyResult<bool> {
    Ok(PgType::of_json(&parse_kind(kind)?).reads_binary())
}

fn parse_kind(kind: &str) -> PyResult<serde_json::Value> {
    serde_json::from_str(kind).map_err(|error| DecodeError::new(format!("a type: {error}"), 0).into())
}

/// A column of a table as JSON: see `pgoutput::types::column`.
#[pyfunction]
fn pg_column(name: &str, kind: &str, modifier: i32, nullable: bool, shown: &str) -> PyResult<String> {
    Ok(types::column(name, &parse_kind(kind)?, modifier, nullable, shown).to_string())
}

#[pyclass(module = "penstock._core", frozen)]
struct PgBatch(Batch);

#[pymethods]
impl PgBatch {
    fn __len__(&self) -> usize {
        self.0.count()
    }

    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> Vec<(u64, Bound<'py, PyBytes>)> {
        self.0.messages().map(|(lsn, bytes)| (lsn, PyBytes::new(py, bytes))).collect()
    }

    #[getter]
    fn kinds<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let kinds: Vec<u8> =
            self.0.messages().map(|(_, bytes)| bytes.first().copied().unwrap_or(0)).collect();
        PyBytes::new(py, &kinds)
    }

    fn chosen(&self, numbers: Vec<usize>) -> Self {
        Self(self.0.chosen(&numbers))
    }

    #[getter]
    fn end(&self) -> u64 {
        self.0.end
    }

    #[getter]
    fn asked(&self) -> bool {
        self.0.asked
    }

    #[getter]
    fn others<'py>(&self, py: Python<'py>) -> Vec<(u8, Bound<'py, PyBytes>)> {
        self.0.others.iter().map(|(kind, body)| (*kind, PyBytes::new(py, body))).collect()
    }
}

#[pyclass(module = "penstock._core")]
#[derive(Default)]
struct PgArrivals(Arrivals);

#[pymethods]
impl PgArrivals {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn feed(&mut self, data: &[u8]) -> PyResult<()> {
        Ok(self.0.feed(data)?)
    }

    #[getter]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    fn take(&mut self) -> PgBatch {
        PgBatch(self.0.take())
    }
}

/// Messages in the order in which they hold: those of transactions that are sent while they run at the commit
/// of these.
#[pyclass(module = "penstock._core")]
struct PgStreams {
    streams: Streams,
    /// What was fed, and the number of the first message that is in no part.
    fed: Option<(Py<PgBatch>, usize)>,
}

#[pymethods]
impl PgStreams {
    #[new]
    fn new(folder: std::path::PathBuf) -> Self {
        Self { streams: Streams::new(folder), fed: None }
    }

    /// To be called when `next` has returned None, or the whole batch.
    fn feed(&mut self, batch: Py<PgBatch>) {
        self.fed = Some((batch, 0));
    }

    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Py<PgBatch>>> {
        let Some((batch, at)) = &mut self.fed else { return Ok(None) };
        let (streams, messages) = (&mut self.streams, &batch.get().0);
        match py.detach(|| streams.next(messages, at)) {
            Ok(Some(Part::Whole)) => Ok(Some(batch.clone_ref(py))),
            Ok(Some(Part::Messages(part))) => Ok(Some(Py::new(py, PgBatch(part))?)),
            Ok(None) => Ok(None),
            Err(Failed::Decode(error)) => Err(error.into()),
            Err(Failed::Io(error)) => Err(self.failed(&error)),
        }
    }

    fn clear(&mut self) -> PyResult<()> {
        self.fed = None;
        self.streams.clear().map_err(|error| self.failed(&error))
    }

    #[getter]
    fn kept(&self) -> (usize, u64) {
        self.streams.kept()
    }
}

impl PgStreams {
    fn failed(&self, error: &std::io::Error) -> PyErr {
        os_error(&self.streams.folder().to_string_lossy(), error)
    }
}

#[pyclass(module = "penstock._core")]
pub struct PgTranslator(Translator);

#[pymethods]
impl PgTranslator {
    #[new]
    fn new(end_lsn: u64, near: u64) -> Self {
        Self(Translator::new(end_lsn, near))
    }

    /// The messages that describe tables which are not known: relation, schema, table, and the message.
    fn unknown(&self, batch: &PgBatch) -> PyResult<Vec<Described>> {
        Ok(self.0.unknown(batch.0.messages())?)
    }

    /// The messages that described these relations, as far as they are known.
    fn described(&self, relations: Vec<u32>) -> PyResult<Vec<Described>> {
        Ok(self.0.described(&relations)?)
    }

    /// `definition`: JSON with `key` and `columns`. `said`: what has happened to the table since the message
    /// before, as schemas and JSON. `root`: the table of which this one is a partition: number, schema, name,
    /// and the numbers of all its partitions.
    #[pyo3(signature = (message, definition, said = Vec::new(), root = None))]
    fn describe(
        &mut self,
        message: &[u8],
        definition: String,
        said: Vec<Said>,
        root: Option<Root>,
    ) -> PyResult<()> {
        Ok(self.0.describe(message, definition, said, root)?)
    }

    /// The records of a transaction that only says what has happened to tables.
    fn say<'py>(&self, py: Python<'py>, said: Vec<Said>, commit_us: i64) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.say(&said, commit_us))
    }

    fn translate<'py>(&mut self, py: Python<'py>, batch: &PgBatch) -> PyResult<Bound<'py, PyBytes>> {
        let translator = &mut self.0;
        let records = py.detach(|| translator.translate(batch.0.messages()))?;
        Ok(PyBytes::new(py, &records))
    }

    /// The record that says that the source had executed these transactions where the log ends.
    #[staticmethod]
    fn executed<'py>(py: Python<'py>, set: &str) -> Bound<'py, PyBytes> {
        let mut records = crate::typed_rows::write::Records::default();
        records.executed(set);
        PyBytes::new(py, &records.bytes)
    }

    /// The record that says that the source has advanced to a place without a transaction.
    #[staticmethod]
    fn moved<'py>(py: Python<'py>, lsn: u64) -> Bound<'py, PyBytes> {
        let mut records = crate::typed_rows::write::Records::default();
        records.moved(lsn);
        PyBytes::new(py, &records.bytes)
    }

    #[getter]
    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    #[getter]
    fn is_settled(&self) -> bool {
        self.0.is_settled()
    }

    #[getter]
    fn is_whole(&self) -> bool {
        self.0.is_whole()
    }

    #[getter]
    fn end_lsn(&self) -> u64 {
        self.0.end_lsn
    }

    /// The id of the last transaction.
    #[getter]
    fn near(&self) -> u64 {
        self.0.near
    }
}

#[pyclass(module = "penstock._core")]
struct PgCopyDecoder(CopyDecoder);

#[pymethods]
impl PgCopyDecoder {
    #[new]
    #[pyo3(signature = (table, column_types, *, types = "{}", batch_rows = 65536, batch_bytes = 32 << 20))]
    fn new(
        table: &str,
        column_types: Vec<String>,
        types: &str,
        batch_rows: usize,
        batch_bytes: usize,
    ) -> PyResult<Self> {
        let (table, types) = (parse_table(table)?, parse_types(types)?);
        let kinds = column_types.iter().map(|kind| Ok(PgType::of_json(&parse_kind(kind)?)));
        let kinds = kinds.collect::<PyResult<Vec<_>>>()?;
        Ok(Self(CopyDecoder::new(table, kinds, types, batch_rows, batch_bytes)?))
    }

    fn feed(&mut self, py: Python<'_>, data: PyBackedBytes) -> PyResult<Vec<PyArrowType<RecordBatch>>> {
        let batches = py.detach(|| self.0.feed(&data))?;
        Ok(batches.into_iter().map(PyArrowType).collect())
    }

    #[getter]
    fn done(&self) -> bool {
        self.0.done()
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows()
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<Option<PyArrowType<RecordBatch>>> {
        Ok(py.detach(|| self.0.finish())?.map(PyArrowType))
    }
}
