//! The segment formats, and which one a file has.
//!
//! A further format is listed here, and in `relaylog/segment_format.py`.

use pyo3::exceptions::PyValueError;
use pyo3::PyResult;

use crate::encode::source_info::{self, SourceInfo};
use crate::mysql::binlog::MySqlBinlog;
use crate::pgoutput::{self, Pgoutput};
use crate::row_log::Transactions;
use crate::segment_file::SegmentFile;
use crate::segment_format::SegmentFormat;
use crate::transaction::{Part, Selection};
use crate::typed_rows::{self, TypedRows};

/// A format by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    MySqlBinlog,
    TypedRows,
    Pgoutput,
}

impl Named {
    /// None: there is no such format.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            MySqlBinlog::NAME => Some(Self::MySqlBinlog),
            TypedRows::NAME => Some(Self::TypedRows),
            Pgoutput::NAME => Some(Self::Pgoutput),
            _ => None,
        }
    }

    /// Files of relay logs have the suffix of their format. Other files are binlog files.
    pub fn of_file(file: &SegmentFile) -> Self {
        match file.name().rsplit('.').next() {
            Some(typed_rows::NAME) => Self::TypedRows,
            Some(pgoutput::NAME) => Self::Pgoutput,
            _ => Self::MySqlBinlog,
        }
    }
}

/// An expression in which `Format` is the one of this name.
macro_rules! with_named {
    ($named:expr, $call:expr) => {
        match $named {
            $crate::python::segment_format::Named::MySqlBinlog => {
                type Format = $crate::mysql::binlog::MySqlBinlog;
                $call
            }
            $crate::python::segment_format::Named::TypedRows => {
                type Format = $crate::typed_rows::TypedRows;
                $call
            }
            $crate::python::segment_format::Named::Pgoutput => {
                type Format = $crate::pgoutput::Pgoutput;
                $call
            }
        }
    };
}

/// An expression in which `Format` is that of a file.
macro_rules! with_format {
    ($file:expr, $call:expr) => {
        $crate::python::segment_format::with_named!(
            $crate::python::segment_format::Named::of_file($file),
            $call
        )
    };
}

pub(super) use {with_format, with_named};

/// The transactions of parts, which are all of one format.
pub(super) fn order_of(parts: Vec<Part>, selection: Selection) -> Box<dyn Transactions> {
    match parts.first().map(|part| Named::of_file(&part.file)) {
        Some(named) => with_named!(named, Format::in_order(parts, selection)),
        None => MySqlBinlog::in_order(parts, selection), // there are none
    }
}

/// What messages say of the source of parts, which are all of one format.
pub(super) fn source_info_of(parts: &[Part]) -> &'static SourceInfo {
    let named = parts.first().map(|part| Named::of_file(&part.file));
    let found = named.and_then(|named| with_named!(named, source_info::of_format(Format::NAME)));
    found.unwrap_or(&source_info::MYSQL)
}

/// The same by the format's name.
pub(super) fn source_info(name: &str) -> PyResult<&'static SourceInfo> {
    source_info::of_format(name)
        .ok_or_else(|| PyValueError::new_err(format!("there is no segment format `{name}`")))
}
