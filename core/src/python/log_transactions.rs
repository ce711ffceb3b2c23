//! `transactions_of`.

use pyo3::prelude::*;

use super::encode::{part_of, PartArgument};
use super::segment_format::{order_of, source_info_of};
use crate::transaction::{Part, Selection};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(transactions_of, module)?)
}

/// Start, id, place at the source, and commit time.
type Found = (Vec<u64>, Vec<Option<String>>, Vec<String>, Vec<u64>);

#[pyfunction]
#[pyo3(signature = (parts, tables, *, statements = false))]
fn transactions_of(
    py: Python<'_>,
    parts: Vec<PartArgument>,
    tables: Vec<(String, String)>,
    statements: bool,
) -> PyResult<Found> {
    py.detach(|| {
        let parts: Vec<Part> = parts.into_iter().map(part_of).collect();
        let info = source_info_of(&parts);
        let selection = Selection { tables: tables.into_iter().collect(), of_the_server: info.of_the_server };
        let mut log = order_of(parts, selection);
        let mut found = Found::default();
        while let Some(survey) = log.next_group()? {
            if survey.last_rows.is_some() || (statements && !survey.statements.is_empty()) {
                let transaction = survey.transaction;
                found.0.push(transaction.start);
                found.1.push(transaction.gtid);
                found.2.push((info.write_place)(&transaction.file, transaction.position));
                found.3.push(transaction.commit_us);
            }
        }
        Ok(found)
    })
}
