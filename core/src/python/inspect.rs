//! `Inspector`, `read_statement` and `server_version`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::segment_file::FileArgument;
use super::segment_format::Named;
use crate::inspect::{self, Options};
use crate::mysql::log_file::LogFile;
use crate::pgoutput;
use crate::schema::TableSchema;
use crate::typed_rows;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Inspector>()?;
    module.add_function(wrap_pyfunction!(server_version, module)?)?;
    module.add_function(wrap_pyfunction!(read_statement, module)?)
}

#[pyclass(module = "penstock._core")]
struct Inspector(inspect::Inspector);

#[pymethods]
impl Inspector {
    #[new]
    #[pyo3(signature = (
        path, *, base = 0, end = None, schemas = Vec::new(), tables = Vec::new(), count_only = false
    ))]
    fn new(
        py: Python<'_>,
        path: FileArgument,
        base: u64,
        end: Option<u64>,
        schemas: Vec<String>,
        tables: Vec<String>,
        count_only: bool,
    ) -> PyResult<Self> {
        let schemas = schemas.iter().map(|json| TableSchema::from_json(json)).collect::<Result<_, _>>()?;
        let options = Options { base, end, schemas, tables, count_only };
        Ok(Self(py.detach(|| match Named::of_file(&path.0) {
            Named::MySqlBinlog => inspect::Inspector::open(&path.0, options),
            Named::TypedRows => inspect::Inspector::of_records::<typed_rows::Own>(&path.0, options),
            Named::Pgoutput => inspect::Inspector::of_records::<pgoutput::Messages>(&path.0, options),
        })))
    }

    #[pyo3(signature = (limit = 1000))]
    fn next_lines(&mut self, py: Python<'_>, limit: usize) -> PyResult<Option<Vec<String>>> {
        Ok(py.detach(|| self.0.next_lines(limit))?)
    }

    fn summary(&self) -> String {
        self.0.summary()
    }
}

#[pyfunction]
fn server_version(py: Python<'_>, path: FileArgument) -> PyResult<String> {
    if Named::of_file(&path.0) != Named::MySqlBinlog {
        return Ok(String::new()); // no server wrote it
    }
    let file = py.detach(|| LogFile::open_for_few(&path.0, 0))?;
    Ok(file.format().server_version.clone())
}

#[pyfunction]
fn read_statement(py: Python<'_>, path: FileArgument, position: u64) -> PyResult<Bound<'_, PyDict>> {
    let statement = py.detach(|| inspect::read_statement(&path.0, position))?;
    let fields = PyDict::new(py);
    fields.set_item("sql", statement.sql)?;
    fields.set_item("database", statement.database)?;
    fields.set_item("timestamp", statement.timestamp)?;
    fields.set_item("thread_id", statement.thread_id)?;
    fields.set_item("error_code", statement.error_code)?;
    fields.set_item("charset", statement.charset)?;
    fields.set_item("sql_mode", statement.sql_mode)?;
    Ok(fields)
}
