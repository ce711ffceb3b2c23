//! The one place where Rust errors become Python errors.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::{DecodeError, Lacks};

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Defines the exception classes of `errors.py` in the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let source = std::ffi::CString::new(include_str!("errors.py"))?;
    // Named like the module they belong to, so that pickle finds them there.
    let classes = PyModule::from_code(py, &source, c"penstock/_core/errors.py", c"penstock._core")?;
    for name in ["DecodeError", "SchemaMismatch", "ServerError"] {
        module.add(name, classes.getattr(name)?)?;
    }
    let _ = CLASSES.set(py, classes.unbind());
    Ok(())
}

fn raise(py: Python<'_>, class: &str, arguments: impl for<'py> pyo3::call::PyCallArgs<'py>) -> PyErr {
    let instance = match CLASSES.get(py) {
        Some(classes) => classes.bind(py).getattr(class).and_then(|class| class.call1(arguments)),
        None => Err(pyo3::exceptions::PyImportError::new_err("penstock._core is not initialised")),
    };
    instance.map_or_else(|error| error, PyErr::from_value)
}

impl From<DecodeError> for PyErr {
    fn from(error: DecodeError) -> Self {
        Python::attach(|py| {
            // Who fetched the bytes has raised an error of its own.
            let cause = error.cause().and_then(|cause| cause.get_ref()?.downcast_ref::<PyErr>());
            if let Some(raised) = cause {
                return raised.clone_ref(py);
            }
            match error.table() {
                Some(table) => {
                    let lacks = error.lacks().map_or("", Lacks::name);
                    let arguments = (error.reason(), error.offset(), error.path(), table, lacks);
                    raise(py, "SchemaMismatch", arguments)
                }
                None => raise(py, "DecodeError", (error.reason(), error.offset(), error.path())),
            }
        })
    }
}

/// Like an error of `open` in Python: it gets the class and the text of its number.
pub fn os_error(path: &str, cause: &std::io::Error) -> PyErr {
    match cause.raw_os_error() {
        Some(number) => PyOSError::new_err((number, cause.to_string(), path.to_owned())),
        None => PyOSError::new_err(format!("{path}: {cause}")),
    }
}

/// An ERR packet of the server.
pub fn server_error(py: Python<'_>, code: u16, sqlstate: &str, message: &str) -> PyErr {
    raise(py, "ServerError", (code, sqlstate, message))
}
