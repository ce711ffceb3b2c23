//! `GtidSet`, `SeriesSet`, `XidSet`: the sets of transactions of the segment formats.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::error::DecodeError;
use crate::mysql::gtid;
use crate::pgoutput::xids;
use crate::transaction_set::TransactionSet as _;
use crate::typed_rows;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<GtidSet>()?;
    module.add_class::<SeriesSet>()?;
    module.add_class::<XidSet>()
}

fn parsed<T: std::str::FromStr<Err = DecodeError>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|error: DecodeError| PyValueError::new_err(error.reason().to_owned()))
}

/// A set of transactions as a class of Python, with more methods of its own.
macro_rules! transaction_set {
    ($name:ident, $set:ty, { $($more:tt)* }) => {
        #[pyclass(frozen, module = "penstock._core", from_py_object)]
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub struct $name($set);

        #[pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = (text = ""))]
            fn new(text: &str) -> PyResult<Self> {
                parsed(text).map(Self)
            }

            fn __contains__(&self, id: &str) -> PyResult<bool> {
                Ok(self.0.contains(&parsed(id)?))
            }

            fn issubset(&self, other: &Self) -> bool {
                self.0.is_subset(&other.0)
            }

            fn union(&self, other: &Self) -> Self {
                Self(self.0.union(&other.0))
            }

            fn intersection(&self, other: &Self) -> Self {
                Self(self.0.intersection(&other.0))
            }

            fn __bool__(&self) -> bool {
                !self.0.is_empty()
            }

            fn __richcmp__(&self, other: &Self, operation: CompareOp) -> PyResult<bool> {
                match operation {
                    CompareOp::Eq => Ok(self == other),
                    CompareOp::Ne => Ok(self != other),
                    _ => Err(PyTypeError::new_err("sets of transactions have no order; use issubset")),
                }
            }

            fn __hash__(&self) -> u64 {
                let mut hasher = DefaultHasher::new();
                self.hash(&mut hasher);
                hasher.finish()
            }

            fn __str__(&self) -> String {
                self.0.to_string()
            }

            fn __repr__(&self) -> String {
                format!("{}('{}')", stringify!($name), self.0)
            }

            fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (String,)) {
                (py.get_type::<Self>(), (self.0.to_string(),))
            }

            $($more)*
        }
    };
}

transaction_set!(GtidSet, gtid::GtidSet, {
    fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0))
    }

    fn count(&self) -> u64 {
        self.0.count()
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }
});

transaction_set!(SeriesSet, typed_rows::SeriesSet, {});

transaction_set!(XidSet, xids::XidSet, {
    /// What a snapshot shows (`pg_current_snapshot`).
    #[staticmethod]
    fn of_snapshot(after: u64, running: Vec<u64>) -> Self {
        Self(xids::XidSet::of_snapshot(after, &running))
    }
});
