//! The Python skin: `penstock._core`, whose stub is `src/penstock/_core.pyi`. No logic here.

mod debezium_log;
mod decode;
mod encode;
mod errors;
mod frame;
mod inspect;
mod key_index;
mod key_run;
mod log_fields;
mod log_transactions;
mod pgoutput;
mod resultset;
mod schema;
mod segment_file;
mod segment_format;
mod text;
mod transaction_sets;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    segment_file::register(module)?;
    debezium_log::register(module)?;
    decode::register(module)?;
    encode::register(module)?;
    key_index::register(module)?;
    key_run::register(module)?;
    log_fields::register(module)?;
    log_transactions::register(module)?;
    pgoutput::register(module)?;
    frame::register(module)?;
    resultset::register(module)?;
    inspect::register(module)?;
    schema::register(module)?;
    text::register(module)?;
    transaction_sets::register(module)?;
    Ok(())
}
