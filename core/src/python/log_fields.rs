//! Fields of transactions and statements of a log, and `source_fields`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::segment_format::source_info;
use crate::encode::debezium::source_block;
use crate::encode::json_text::quoted;
use crate::encode::source_info::{Source, SourceInfo};
use crate::transaction::{LoggedStatement, Transaction};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(source_fields, module)?)
}

#[pyfunction]
#[pyo3(signature = (
    segment_format, format, *, place, at_us, database, table, transaction = None, server_id = 0, prefix = "",
    catalog = ""
))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
fn source_fields(
    segment_format: &str,
    format: &str,
    place: &str,
    at_us: u64,
    database: &str,
    table: &str,
    transaction: Option<&str>,
    server_id: u32,
    prefix: &str,
    catalog: &str,
) -> PyResult<String> {
    let info = source_info(segment_format)?;
    let (file, position) = (info.read_place)(place);
    let of = Transaction {
        gtid: transaction.map(str::to_owned),
        file: file.to_owned(),
        position,
        ..Transaction::default()
    };
    let source = Source { transaction: &of, position, server_id, query: None, catalog, database, table };
    match format {
        "json" => Ok(format!("{{{}}}", info.plain_fields(&source).trim_start_matches(','))),
        "debezium" => {
            let block = source_block(info, &source, &quoted(prefix), (at_us, None));
            Ok(block.before + &block.behind.map_or_else(String::new, |behind| format!("0{behind}")))
        }
        other => Err(PyValueError::new_err(format!("messages of the format `{other}` have no such fields"))),
    }
}

pub(super) fn transaction_fields<'py>(
    py: Python<'py>,
    info: &SourceInfo,
    transaction: &Transaction,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("id", &transaction.gtid)?;
    fields.set_item("commit_us", transaction.commit_us)?;
    fields.set_item("xid", transaction.xid)?;
    fields.set_item("thread_id", transaction.thread_id)?;
    fields.set_item("position", (info.write_place)(&transaction.file, transaction.position))?;
    fields.set_item("start", transaction.start)?;
    fields.set_item("end", transaction.end)?;
    Ok(fields)
}

pub(super) fn statement_fields<'py>(
    py: Python<'py>,
    info: &SourceInfo,
    transaction: &Transaction,
    statement: LoggedStatement,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = transaction_fields(py, info, transaction)?;
    fields.set_item("segment_format", info.format)?;
    fields.set_item("canal_type", info.canal_type)?;
    fields.set_item("file", &transaction.file)?;
    fields.set_item("event_place", (info.write_place)(&transaction.file, statement.position))?;
    fields.set_item("database", statement.database)?;
    fields.set_item("sql", statement.sql)?;
    fields.set_item("event", statement.event)?;
    fields.set_item("timestamp", statement.timestamp)?;
    fields.set_item("server_id", statement.server_id)?;
    fields.set_item("event_position", statement.position)?;
    fields.set_item("event_bytes", statement.end_position.saturating_sub(statement.position))?;
    fields.set_item("sql_mode", statement.sql_mode)?;
    fields.set_item("server_charset", statement.server_charset)?;
    Ok(fields)
}
