//! `PgTranslator`.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::error::DecodeError;
use crate::pgoutput::message::Message;
use crate::pgoutput::translator::{self, Described, Translator};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PgTranslator>()?;
    module.add_function(wrap_pyfunction!(pg_column, module)?)?;
    module.add_function(wrap_pyfunction!(pg_reads_binary, module)?)?;
    Ok(())
}

/// Whether the binary form of a type's values is known.
#[pyfunction]
fn pg_reads_binary(type_id: u32) -> bool {
    crate::pgoutput::types::PgType::of(type_id) != crate::pgoutput::types::PgType::Other
}

/// A column of a table as JSON: see `pgoutput::types::column`.
#[pyfunction]
fn pg_column(name: &str, type_id: u32, modifier: i32, nullable: bool, shown: &str) -> String {
    crate::pgoutput::types::column(name, type_id, modifier, nullable, shown).to_string()
}

#[pyclass(module = "penstock._core")]
pub struct PgTranslator(Translator);

type Sent = (u64, PyBackedBytes);

#[pymethods]
impl PgTranslator {
    #[new]
    fn new(end_lsn: u64, near: u64) -> Self {
        Self(Translator::new(end_lsn, near))
    }

    /// The messages that describe tables which are not known: relation, schema, table, and the message.
    fn unknown(&self, messages: Vec<Sent>) -> PyResult<Vec<Described>> {
        Ok(self.0.unknown(messages.iter().map(|(lsn, bytes)| (*lsn, &**bytes)))?)
    }

    /// `key`: the primary key. `types`: of types that are no part of every server, the one whose values they
    /// have. `shown`: for each column how the server writes its type, and whether it may be NULL.
    fn describe(
        &mut self,
        message: &[u8],
        key: Vec<String>,
        types: HashMap<u32, u32>,
        shown: HashMap<String, (String, bool)>,
    ) -> PyResult<()> {
        let Message::Relation(relation) = Message::parse(message, 0)? else {
            return Err(DecodeError::new("this message describes no table", 0).into());
        };
        let definition = translator::definition(&relation, &key, &types, &shown);
        Ok(self.0.describe(message, definition.to_string())?)
    }

    fn translate<'py>(&mut self, py: Python<'py>, messages: Vec<Sent>) -> PyResult<Bound<'py, PyBytes>> {
        let translator = &mut self.0;
        let records =
            py.detach(|| translator.translate(messages.iter().map(|(lsn, bytes)| (*lsn, &**bytes))))?;
        Ok(PyBytes::new(py, &records))
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
