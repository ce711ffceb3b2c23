//! `LogEncoder` and `RowEncoder`.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PySlice};

use super::log_fields::{statement_fields, transaction_fields};
use super::schema::{parse_table, parse_types};
use super::segment_file::FileArgument;
use super::segment_format::{order_of, source_info, source_info_of};
use crate::encode::binary::{varint_length, write_tag, write_varint, LENGTH};
use crate::encode::columns::Chosen;
use crate::encode::encoder::{Batch, Encoder, Step};
use crate::encode::format::Format;
use crate::encode::records::{records, Target};
use crate::encode::route::{By, Route};
use crate::encode::row_encoder::{self, Read};
use crate::encode::ruled::{Origin, Ruled};
use crate::encode::schema_ids::{MessageSchema, SchemaIds};
use crate::encode::source_info::SourceInfo;
use crate::encode::{formats, messages::About};
use crate::error::DecodeError;
use crate::schema::TableSchema;
use crate::transaction::{KnownPlace, Part, Selection};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LogEncoder>()?;
    module.add_class::<RowEncoder>()?;
    module.add_function(wrap_pyfunction!(collected_rows, module)?)?;
    module.add_class::<EncodedMessages>()?;
    module.add_class::<MessageValues>()?;
    module.add_function(wrap_pyfunction!(repeated_field, module)?)
}

/// File, base, start and end of a part, and offset, file and position of places of the source.
pub(super) type PartArgument = (FileArgument, u64, u64, Option<u64>, Vec<(u64, String, u64)>);

pub(super) fn part_of((file, base, start, end, known): PartArgument) -> Part {
    let known = match known.is_empty() {
        true => vec![KnownPlace::of_file(file.0.name())],
        false => known.into_iter().map(Into::into).collect(),
    };
    Part { file: file.0, base, start, end, known }
}

/// What decides the partition, and the columns of that.
type RouteArgument = (String, Option<Vec<String>>);

fn route_of((by, columns): RouteArgument) -> PyResult<Route> {
    let by = match by.as_str() {
        "key" => By::Key,
        "columns" => By::Columns,
        "canal" => By::Canal { database: false },
        "canal-database" => By::Canal { database: true },
        "transaction" => By::Transaction,
        other => return Err(PyValueError::new_err(format!("there is no route `{other}`"))),
    };
    Ok(Route { by, columns })
}

/// The table as messages show it; for each of its columns, the one of the source that it comes from, and
/// whether rules make its values; the columns that rules look at, and their types; whether rules leave out
/// rows.
type RulesArgument = (String, Vec<(Option<String>, bool)>, Vec<String>, String, bool);

fn ruled((schema, origins, needed, types, drops): RulesArgument) -> PyResult<Ruled> {
    let schema = parse_table(&schema)?;
    let origins = origins.into_iter().map(|(source, made)| Origin { source, made }).collect();
    Ok(Ruled { schema, origins, needed, types: parse_types(&types)?, drops })
}

/// Database and name of a table, its rows for the rules, and whether columns are missing in some.
type CollectedArgument = (String, String, PyArrowType<RecordBatch>, bool);

/// Topic, partitions, partition of messages with a key, that of others, largest message, first sequence.
type TargetArgument = (usize, u32, Option<u32>, u32, usize, u64);

fn target_of((topic, partitions, keyed, keyless, bytes_max, from): TargetArgument) -> Target {
    Target { topic, partitions, keyed, keyless, bytes_max, from }
}

#[pyclass(module = "penstock._core")]
struct LogEncoder(Encoder, &'static SourceInfo);

#[pymethods]
impl LogEncoder {
    #[new]
    #[pyo3(signature = (
        parts, format, *, options = "{}", schemas = Vec::new(), tables = Vec::new(), schema_ids = None,
        routes = Vec::new(), columns = Vec::new(), rules = Vec::new()
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        parts: Vec<PartArgument>,
        format: &str,
        options: &str,
        schemas: Vec<String>,
        tables: Vec<(String, String)>,
        schema_ids: Option<Py<PyAny>>,
        routes: Vec<(String, String, RouteArgument)>,
        columns: Vec<(String, String, bool, Vec<String>)>,
        rules: Vec<(String, String, RulesArgument)>,
    ) -> PyResult<Self> {
        let schemas = schemas.iter().map(|json| TableSchema::from_json(json)).collect::<Result<_, _>>()?;
        let parts: Vec<Part> = parts.into_iter().map(part_of).collect();
        let info = source_info_of(&parts);
        let selection = Selection { tables: tables.into_iter().collect(), of_the_server: info.of_the_server };
        let format = named_format(format, options, info, schema_ids)?;
        let order = order_of(parts, selection.clone());
        let mut encoder = Encoder::new(order, format, schemas, selection);
        for (database, table, route) in routes {
            encoder.route(&database, &table, route_of(route)?);
        }
        for (database, table, keep, names) in columns {
            encoder.choose(&database, &table, Chosen { keep, names });
        }
        for (database, table, argument) in rules {
            encoder.rule(&database, &table, ruled(argument)?);
        }
        Ok(Self(encoder, info))
    }

    #[pyo3(signature = (bytes = 1 << 20))]
    fn read<'py>(&mut self, py: Python<'py>, bytes: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        match py.detach(|| self.0.next_step(bytes))? {
            None => Ok(None),
            Some(Step::Messages(batch)) => {
                Ok(Some(Bound::new(py, EncodedMessages::new(batch, self.1))?.into_any()))
            }
            Some(Step::Statements(transaction, statements)) => {
                let list = PyList::empty(py);
                for statement in statements {
                    list.append(statement_fields(py, self.1, &transaction, statement)?)?;
                }
                Ok(Some(list.into_any()))
            }
        }
    }

    #[pyo3(signature = (bytes = 4 << 20))]
    fn collect(&mut self, py: Python<'_>, bytes: usize) -> PyResult<Option<Vec<CollectedArgument>>> {
        let found = py.detach(|| self.0.collect(bytes))?;
        let shown =
            |((database, table), batch, incomplete)| (database, table, PyArrowType(batch), incomplete);
        Ok(found.map(|rows| rows.into_iter().map(shown).collect()))
    }

    fn apply(&mut self, database: String, table: String, rows: PyArrowType<RecordBatch>) -> PyResult<()> {
        Ok(self.0.apply(&(database, table), rows.0)?)
    }

    #[pyo3(signature = (database, table, schema, *, certain = true))]
    fn define(&mut self, database: &str, table: &str, schema: Option<&str>, certain: bool) -> PyResult<()> {
        let schema = schema.map(TableSchema::from_json).transpose()?;
        self.0.define(database, table, schema, certain);
        Ok(())
    }

    #[getter]
    fn tables(&self) -> Vec<(String, String)> {
        self.0.tables().to_vec()
    }

    #[getter]
    fn message_schemas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        schema_list(py, self.0.schemas())
    }
}

#[pyfunction]
#[pyo3(signature = (table, rows, needed, types = "{}"))]
fn collected_rows(
    py: Python<'_>,
    table: &str,
    rows: PyArrowType<RecordBatch>,
    needed: Vec<String>,
    types: &str,
) -> PyResult<PyArrowType<RecordBatch>> {
    let (table, types) = (TableSchema::from_json(table)?, parse_types(types)?);
    Ok(PyArrowType(py.detach(|| row_encoder::collected(table, &rows.0, &needed, types))?))
}

#[pyclass(module = "penstock._core")]
struct RowEncoder(row_encoder::RowEncoder, &'static SourceInfo);

#[pymethods]
impl RowEncoder {
    #[new]
    #[pyo3(signature = (
        table, format, *, options = "{}", schema_ids = None, route = None, segment_format = "mysql-binlog"
    ))]
    fn new(
        table: &str,
        format: &str,
        options: &str,
        schema_ids: Option<Py<PyAny>>,
        route: Option<RouteArgument>,
        segment_format: &str,
    ) -> PyResult<Self> {
        let (table, info) = (TableSchema::from_json(table)?, source_info(segment_format)?);
        let format = named_format(format, options, info, schema_ids)?;
        let route = route.map(route_of).transpose()?;
        Ok(Self(row_encoder::RowEncoder::new(table, format, route.as_ref())?, info))
    }

    #[pyo3(signature = (
        batch, *, at_us, snapshot = "true", first = None, last = None, place = "", transaction = None,
        server_id = 0, sequence = 0, first_row = 0
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn encode(
        &mut self,
        py: Python<'_>,
        batch: PyArrowType<RecordBatch>,
        at_us: u64,
        snapshot: &str,
        first: Option<&str>,
        last: Option<&str>,
        place: &str,
        transaction: Option<&str>,
        server_id: u32,
        sequence: u64,
        first_row: u32,
    ) -> PyResult<EncodedMessages> {
        let (first, last) = (first.unwrap_or(snapshot), last.unwrap_or(snapshot));
        let (others, (file, position)) = (snapshot, (self.1.read_place)(place));
        let read =
            Read { at_us, file, position, transaction, server_id, first, last, others, sequence, first_row };
        let messages = py.detach(|| self.0.encode(&batch.0, &read))?;
        Ok(EncodedMessages::new(Batch { messages, transactions: Vec::new() }, self.1))
    }

    #[getter]
    fn message_schemas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        schema_list(py, self.0.schemas())
    }
}

#[pyclass(frozen, module = "penstock._core")]
struct EncodedMessages(Arc<Batch>, &'static SourceInfo);

impl EncodedMessages {
    fn new(mut batch: Batch, info: &'static SourceInfo) -> Self {
        // Subscribers may keep it for a while (`values`).
        batch.messages.shrink();
        Self(Arc::new(batch), info)
    }
}

#[pymethods]
impl EncodedMessages {
    fn __len__(&self) -> usize {
        self.0.messages.len()
    }

    /// Table (None: a transaction's begin or end), key, value and sequence of each message. `tables`: what
    /// stands for a table, by its number.
    #[pyo3(signature = (start = 0, end = None, tables = None))]
    fn messages<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        end: Option<usize>,
        tables: Option<&Bound<'py, PyList>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for index in start..end.unwrap_or(usize::MAX).min(self.0.messages.len()) {
            let Some(message) = self.0.messages.get(index) else { break };
            let table = match message.about {
                About::Table(number) => Some(number),
                About::Transaction => None,
            };
            let bytes = |part: Option<&[u8]>| part.map(|part| PyBytes::new(py, part));
            let (key, value) = (bytes(message.key), bytes(message.value));
            match (tables, table) {
                (Some(tables), Some(number)) => {
                    list.append((tables.get_item(number as usize)?, key, value, message.sequence))?;
                }
                _ => list.append((table, key, value, message.sequence))?,
            }
        }
        Ok(list)
    }

    /// Arrays of `rd_kafka_message_t`, each with its topic's number; or table and size of a message that is
    /// too large.
    #[pyo3(signature = (targets, transactions = None))]
    #[expect(clippy::type_complexity, reason = "a pair of Python")]
    fn records<'py>(
        &self,
        py: Python<'py>,
        targets: Vec<Option<TargetArgument>>,
        transactions: Option<TargetArgument>,
    ) -> PyResult<(Vec<(usize, Bound<'py, PyByteArray>)>, Option<(u32, usize)>)> {
        let targets: Vec<Option<Target>> = targets.into_iter().map(|one| one.map(target_of)).collect();
        match py.detach(|| records(&self.0.messages, &targets, transactions.map(target_of))) {
            Err(large) => Ok((Vec::new(), Some((large.table, large.bytes)))),
            Ok(found) => {
                let arrays = found.iter().map(|one| (one.topic, PyByteArray::new(py, &one.bytes)));
                Ok((arrays.collect(), None))
            }
        }
    }

    /// The hash of each message. None: its key decides.
    fn hashes(&self) -> Vec<Option<u32>> {
        let messages = &self.0.messages;
        (0..messages.len()).map(|index| messages.get(index).and_then(|message| message.hash)).collect()
    }

    /// The values of messages; `rows`: without those of a transaction's begin and end.
    #[pyo3(signature = (start = 0, end = None, *, rows = false))]
    fn values(&self, start: usize, end: Option<usize>, rows: bool) -> MessageValues {
        let messages = &self.0.messages;
        let numbers = start..end.unwrap_or(usize::MAX).min(messages.len());
        let wanted = |number: &usize| {
            !rows || messages.get(*number).is_some_and(|message| message.about != About::Transaction)
        };
        let numbers = numbers.filter(wanted).map(|number| number as u32).collect();
        MessageValues { batch: self.0.clone(), numbers }
    }

    /// End, number of messages up to it, and commit time of each transaction.
    fn ends(&self) -> Vec<(u64, usize, u64)> {
        self.0.transactions.iter().map(|(one, messages)| (one.end, *messages, one.commit_us)).collect()
    }

    fn transactions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (transaction, end) in &self.0.transactions {
            let fields = transaction_fields(py, self.1, transaction)?;
            fields.set_item("messages_end", end)?;
            list.append(fields)?;
        }
        Ok(list)
    }

    #[pyo3(signature = (keys = false, base64 = false))]
    fn lines<'py>(&self, py: Python<'py>, keys: bool, base64: bool) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.messages.lines(keys, base64)))
    }
}

/// The values of some messages, as a sequence of `bytes`. They are copied only when they are asked for.
#[pyclass(frozen, sequence, module = "penstock._core")]
struct MessageValues {
    batch: Arc<Batch>,
    numbers: Vec<u32>,
}

impl MessageValues {
    fn get(&self, index: usize) -> Option<&[u8]> {
        let message = self.batch.messages.get(*self.numbers.get(index)? as usize);
        Some(message.and_then(|one| one.value).unwrap_or_default())
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.numbers.len()).filter_map(|index| self.get(index))
    }
}

#[pymethods]
impl MessageValues {
    fn __len__(&self) -> usize {
        self.numbers.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, at: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = at.cast::<PySlice>() {
            let range = slice.indices(self.numbers.len() as isize)?;
            if range.step != 1 {
                return Err(PyTypeError::new_err("values are cut in steps of 1"));
            }
            let numbers = self.numbers.get(range.start as usize..range.stop as usize).unwrap_or_default();
            let part = Self { batch: self.batch.clone(), numbers: numbers.to_vec() };
            return Ok(Bound::new(py, part)?.into_any());
        }
        let (at, length): (isize, _) = (at.extract()?, self.numbers.len() as isize);
        let index = if at < 0 { at + length } else { at };
        match usize::try_from(index).ok().and_then(|index| self.get(index)) {
            Some(value) => Ok(PyBytes::new(py, value).into_any()),
            None => Err(PyIndexError::new_err("there is no such value")),
        }
    }

    fn sizes(&self) -> Vec<usize> {
        self.iter().map(<[u8]>::len).collect()
    }
}

/// A field of Protobuf that is there once for each value of some sequences of `bytes`.
#[pyfunction]
fn repeated_field<'py>(
    py: Python<'py>,
    field: usize,
    sequences: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let lists = sequences.iter().map(|one| match one.cast::<MessageValues>() {
        Ok(_) => Ok(Vec::new()),
        Err(_) => one.try_iter()?.map(|item| Ok(item?.cast_into::<PyBytes>()?)).collect(),
    });
    let lists = lists.collect::<PyResult<Vec<Vec<Bound<'py, PyBytes>>>>>()?;
    let mut values: Vec<&[u8]> = Vec::new();
    for (one, list) in sequences.iter().zip(&lists) {
        match one.cast::<MessageValues>() {
            Ok(encoded) => values.extend(encoded.get().iter()),
            Err(_) => values.extend(list.iter().map(|item| item.as_bytes())),
        }
    }
    let mut head = Vec::new();
    write_tag(field, LENGTH, &mut head);
    let tag = head.len();
    let size = values.iter().map(|value| tag + varint_length(value.len() as u64) + value.len()).sum();
    PyBytes::new_with(py, size, |mut out| {
        for value in &values {
            head.truncate(tag);
            write_varint(value.len() as u64, &mut head);
            for part in [&head, *value] {
                let (place, rest) = out.split_at_mut(part.len());
                place.copy_from_slice(part);
                out = rest;
            }
        }
        Ok(())
    })
}

fn named_format(
    name: &str,
    options: &str,
    info: &'static SourceInfo,
    schema_ids: Option<Py<PyAny>>,
) -> PyResult<Box<dyn Format>> {
    Ok(match schema_ids {
        Some(function) => formats::with_ids(name, options, info, Box::new(IdsOf(function)))?,
        None => formats::by_name(name, options, info)?,
    })
}

/// The ids that a function of Python gives to schemas.
struct IdsOf(Py<PyAny>);

impl SchemaIds for IdsOf {
    fn id(&mut self, schema: &MessageSchema) -> Result<u32, DecodeError> {
        Python::attach(|py| self.0.bind(py).call1((schema_fields(py, schema)?,))?.extract())
            .map_err(|error: PyErr| DecodeError::of_io("the id of a schema", std::io::Error::other(error), 0))
    }
}

fn schema_fields<'py>(py: Python<'py>, schema: &MessageSchema) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("table", schema.table.clone())?;
    fields.set_item("is_key", schema.is_key)?;
    fields.set_item("name", &schema.name)?;
    fields.set_item("type", schema.kind)?;
    fields.set_item("schema", &schema.text)?;
    Ok(fields)
}

fn schema_list<'py>(py: Python<'py>, schemas: &[(MessageSchema, u32)]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (schema, id) in schemas {
        let fields = schema_fields(py, schema)?;
        fields.set_item("id", id)?;
        list.append(fields)?;
    }
    Ok(list)
}
