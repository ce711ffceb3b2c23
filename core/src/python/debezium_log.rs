//! `TopicTranslator`, `topic_records`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::segment_file::FileArgument;
use crate::debezium_log::message::{Options, Zoned};
use crate::debezium_log::placeholder::Placeholder;
use crate::debezium_log::state::{self, State};
use crate::debezium_log::{Message, Translator};
use crate::typed_rows::write::Records;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TopicTranslator>()?;
    module.add_function(wrap_pyfunction!(topic_records, module)?)?;
    Ok(())
}

type Consumed = (String, i32, u64, i64, Option<PyBackedBytes>, Option<PyBackedBytes>);
fn read(message: &Consumed) -> Message<'_> {
    let (topic, partition, offset, timestamp, key, value) = message;
    Message {
        topic,
        partition: *partition,
        offset: *offset,
        timestamp_ms: *timestamp,
        key: key.as_deref(),
        value: value.as_deref(),
    }
}

type Refusal = (String, i32, u64, String);

#[pyclass(module = "penstock._core")]
pub struct TopicTranslator(Translator);

#[pymethods]
impl TopicTranslator {
    #[new]
    #[pyo3(signature = (
        records, *, zoned_timestamps, cuts_nanoseconds, unavailable, unavailable_uuid = String::new(),
        table, skips
    ))]
    fn new(
        records: Vec<String>,
        zoned_timestamps: &str,
        cuts_nanoseconds: bool,
        unavailable: String,
        unavailable_uuid: String,
        table: Option<String>,
        skips: bool,
    ) -> PyResult<Self> {
        let zoned = match zoned_timestamps {
            "instant" => Zoned::Instant,
            "utc" => Zoned::Utc,
            other => return Err(PyValueError::new_err(format!("zoned_timestamps {other:?} is not known"))),
        };
        let unavailable = Placeholder::new(unavailable, unavailable_uuid);
        let state = match State::after(&records).map_err(PyValueError::new_err)? {
            Some(state) => state,
            None if records.is_empty() => State::default(),
            None => return Err(PyValueError::new_err("the records do not begin with a whole state")),
        };
        Ok(Self(Translator::new(Options { zoned, cuts_nanoseconds, unavailable, table, skips }, state)))
    }

    fn set_wide(&mut self, topic: &str) {
        self.0.set_wide(topic);
    }

    /// The ids of schemas that the messages name and that are not known yet.
    fn unknown_schemas(&self, py: Python<'_>, messages: Vec<Consumed>) -> Vec<u32> {
        let translator = &self.0;
        py.detach(|| translator.unknown_schemas(messages.iter().map(read)).into_iter().collect())
    }

    fn add_schema(&mut self, id: u32, text: &str) -> PyResult<()> {
        self.0.add_schema(id, text).map_err(|reason| PyValueError::new_err(reason.into_owned()))
    }

    fn translate<'py>(
        &mut self,
        py: Python<'py>,
        messages: Vec<Consumed>,
    ) -> (Bound<'py, PyBytes>, Vec<Refusal>) {
        let translator = &mut self.0;
        let (records, faults) = py.detach(|| translator.translate(messages.iter().map(read)));
        let faults =
            faults.into_iter().map(|one| (one.topic, one.partition, one.offset, one.reason)).collect();
        (PyBytes::new(py, &records), faults)
    }

    fn advance<'py>(
        &mut self,
        py: Python<'py>,
        topic: &str,
        partition: i32,
        next: u64,
        timestamp_ms: i64,
    ) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.advance(topic, partition, next, timestamp_ms))
    }

    fn checkpoint<'py>(&mut self, py: Python<'py>, timestamp_ms: i64) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.checkpoint(timestamp_ms))
    }

    #[staticmethod]
    fn moved<'py>(py: Python<'py>, position: u64) -> Bound<'py, PyBytes> {
        let mut records = Records::default();
        records.moved(position);
        PyBytes::new(py, &records.bytes)
    }

    #[getter]
    fn positions(&self) -> Vec<(String, i32, String, u64)> {
        let partitions = &self.0.state().partitions;
        partitions.iter().map(|one| (one.topic.clone(), one.partition, one.series(), one.next)).collect()
    }

    #[getter]
    fn tables(&self) -> Vec<String> {
        self.0.state().tables.keys().cloned().collect()
    }

    /// Rows, messages without a row, messages that were sent again, and messages that were skipped.
    #[getter]
    fn counts(&self) -> (u64, u64, u64, u64) {
        let counts = self.0.counts;
        (counts.rows, counts.empty, counts.repeated, counts.skipped)
    }
}

#[pyfunction]
fn topic_records(py: Python<'_>, path: FileArgument, base: u64, end: u64) -> PyResult<Vec<String>> {
    Ok(py.detach(|| state::read(&path.0, base, end))?)
}
