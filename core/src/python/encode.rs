//! `LogEncoder`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::segment_file::FileArgument;
use crate::encode::encoder::{Batch, Encoder, Step};
use crate::encode::{formats, messages::About};
use crate::log_order::{LoggedStatement, Part, Selection, SourceNames, Transaction};
use crate::schema::TableSchema;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LogEncoder>()?;
    module.add_class::<EncodedMessages>()
}

/// File, base, start and end of a part, and offset, file and position of places of the source.
type PartArgument = (FileArgument, u64, u64, Option<u64>, Vec<(u64, String, u64)>);

#[pyclass(module = "penstock._core")]
struct LogEncoder(Encoder);

#[pymethods]
impl LogEncoder {
    #[new]
    #[pyo3(signature = (parts, format, *, options = "{}", schemas = Vec::new(), tables = Vec::new()))]
    fn new(
        parts: Vec<PartArgument>,
        format: &str,
        options: &str,
        schemas: Vec<String>,
        tables: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let parts = parts.into_iter().map(|(file, base, start, end, known)| {
            let names = match known.is_empty() {
                true => SourceNames::of_file(file.0.name()),
                false => SourceNames::new(
                    known
                        .into_iter()
                        .map(|(offset, file, position)| (offset, file, position).into())
                        .collect(),
                ),
            };
            Part { file: file.0, base, start, end, names }
        });
        let schemas = schemas.iter().map(|json| TableSchema::from_json(json)).collect::<Result<_, _>>()?;
        let selection = Selection { tables: tables.into_iter().collect() };
        Ok(Self(Encoder::new(parts.collect(), formats::by_name(format, options)?, schemas, selection)))
    }

    #[pyo3(signature = (bytes = 1 << 20))]
    fn read<'py>(&mut self, py: Python<'py>, bytes: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        match py.detach(|| self.0.next_step(bytes))? {
            None => Ok(None),
            Some(Step::Messages(batch)) => Ok(Some(Bound::new(py, EncodedMessages(batch))?.into_any())),
            Some(Step::Statements(transaction, statements)) => {
                let list = PyList::empty(py);
                for statement in statements {
                    list.append(statement_fields(py, &transaction, statement)?)?;
                }
                Ok(Some(list.into_any()))
            }
        }
    }

    #[pyo3(signature = (database, table, schema))]
    fn define(&mut self, database: &str, table: &str, schema: Option<&str>) -> PyResult<()> {
        let schema = schema.map(TableSchema::from_json).transpose()?;
        self.0.define(database, table, schema);
        Ok(())
    }

    #[getter]
    fn tables(&self) -> Vec<(String, String)> {
        self.0.tables().to_vec()
    }
}

#[pyclass(frozen, module = "penstock._core")]
struct EncodedMessages(Batch);

#[pymethods]
impl EncodedMessages {
    fn __len__(&self) -> usize {
        self.0.messages.len()
    }

    /// Table (None: a transaction's begin or end), key, value and sequence of each message.
    #[pyo3(signature = (start = 0, end = None))]
    fn messages<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        end: Option<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for index in start..end.unwrap_or(usize::MAX).min(self.0.messages.len()) {
            let Some(message) = self.0.messages.get(index) else { break };
            let table = match message.about {
                About::Table(number) => Some(number),
                About::Transaction => None,
            };
            let bytes = |part: Option<&[u8]>| part.map(|part| PyBytes::new(py, part));
            list.append((table, bytes(message.key), bytes(message.value), message.sequence))?;
        }
        Ok(list)
    }

    fn transactions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (transaction, end) in &self.0.transactions {
            let fields = transaction_fields(py, transaction)?;
            fields.set_item("messages_end", end)?;
            list.append(fields)?;
        }
        Ok(list)
    }

    #[pyo3(signature = (keys = false))]
    fn lines<'py>(&self, py: Python<'py>, keys: bool) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.messages.lines(keys)))
    }
}

fn transaction_fields<'py>(py: Python<'py>, transaction: &Transaction) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("id", &transaction.gtid)?;
    fields.set_item("commit_us", transaction.commit_us)?;
    fields.set_item("xid", transaction.xid)?;
    fields.set_item("thread_id", transaction.thread_id)?;
    fields.set_item("file", &transaction.file)?;
    fields.set_item("position", transaction.position)?;
    fields.set_item("start", transaction.start)?;
    fields.set_item("end", transaction.end)?;
    Ok(fields)
}

fn statement_fields<'py>(
    py: Python<'py>,
    transaction: &Transaction,
    statement: LoggedStatement,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = transaction_fields(py, transaction)?;
    fields.set_item("database", statement.database)?;
    fields.set_item("sql", statement.sql)?;
    fields.set_item("event", statement.event)?;
    fields.set_item("timestamp", statement.timestamp)?;
    fields.set_item("server_id", statement.server_id)?;
    fields.set_item("sql_mode", statement.sql_mode)?;
    Ok(fields)
}
