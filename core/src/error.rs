//! Errors of input: what is wrong, and where.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Input is malformed or does not fit. The core never panics on it, and never invents rows.
///
/// `table` is set if only one table is concerned (its schema, its row images, its values). Python raises a
/// `SchemaMismatch` then, and the other tables of the log go on. A reason never contains row values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(Box<Details>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    reason: String,
    offset: u64,
    path: Option<String>,
    table: Option<String>,
    lacks: Option<Lacks>,
    cause: Option<Cause>,
}

/// Why bytes could not be read.
#[derive(Debug, Clone)]
struct Cause(Arc<io::Error>);

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cause {}

/// What the log lacks. A caller that can get it in another way can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacks {
    /// Columns that are in every image with `binlog_row_image = FULL`.
    Columns,
    /// Generated columns, which MariaDB 11 leaves out of updates and deletions.
    Generated,
    /// The names of a table's columns.
    Names,
    /// Columns of a row whose key has changed.
    Moved,
}

impl Lacks {
    pub fn name(self) -> &'static str {
        match self {
            Self::Columns => "columns",
            Self::Generated => "generated",
            Self::Names => "names",
            Self::Moved => "moved",
        }
    }
}

pub type Result<T> = std::result::Result<T, DecodeError>;

impl DecodeError {
    #[cold]
    pub fn new(reason: impl Into<String>, offset: u64) -> Self {
        let reason = reason.into();
        Self(Box::new(Details { reason, offset, path: None, table: None, lacks: None, cause: None }))
    }

    /// Bytes could not be read. `what` says what was tried.
    #[cold]
    pub fn of_io(what: &str, cause: io::Error, offset: u64) -> Self {
        let mut error = Self::new(format!("{what}: {cause}"), offset);
        error.0.cause = Some(Cause(Arc::new(cause)));
        error
    }

    /// An error that concerns `table` (`database.table`) only.
    #[cold]
    pub fn of_table(table: impl Into<String>, reason: impl Into<String>, offset: u64) -> Self {
        let mut error = Self::new(reason, offset);
        error.0.table = Some(table.into());
        error
    }

    /// The error for a table of which no definition is known, and which the log does not describe.
    #[cold]
    pub fn of_names(table: impl Into<String>, reason: impl Into<String>, offset: u64) -> Self {
        let mut error = Self::of_table(table, reason, offset);
        error.0.lacks = Some(Lacks::Names);
        error
    }

    /// The error for a row that lacks columns, and whose key has changed.
    #[cold]
    pub fn of_moved(table: impl Into<String>, reason: impl Into<String>, offset: u64) -> Self {
        let mut error = Self::of_table(table, reason, offset);
        error.0.lacks = Some(Lacks::Moved);
        error
    }

    /// The same error, which concerns `table` only, unless it names another one.
    pub fn of(mut self, table: &str) -> Self {
        self.0.table.get_or_insert_with(|| table.to_owned());
        self
    }

    /// The same error with the name of the file, unless it has one.
    pub fn in_file(mut self, path: &str) -> Self {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The same error at another offset, for values that were read out of their image.
    pub fn moved(mut self, offset: u64) -> Self {
        self.0.offset = offset;
        self
    }

    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }

    /// Why bytes could not be read.
    pub fn cause(&self) -> Option<&io::Error> {
        self.0.cause.as_ref().map(|cause| &*cause.0)
    }

    pub fn lacks(&self) -> Option<Lacks> {
        self.0.lacks
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at offset {}", self.0.reason, self.0.offset)?;
        match &self.0.path {
            Some(path) => write!(out, " of {path}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A value that its column cannot have. The caller knows the place and makes a `DecodeError` of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError(Box<Reason>);

/// The reason is behind a pointer, so that a result fits into a register.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reason {
    text: Box<str>,
    lacks: Option<Lacks>,
}

impl ValueError {
    #[cold]
    pub fn new(reason: impl Into<Box<str>>) -> Self {
        Self(Box::new(Reason { text: reason.into(), lacks: None }))
    }

    /// The image does not have the value at all.
    #[cold]
    pub fn lacking(lacks: Lacks, reason: impl Into<Box<str>>) -> Self {
        Self(Box::new(Reason { text: reason.into(), lacks: Some(lacks) }))
    }

    #[cold]
    pub fn at(&self, table: &str, column: &str, offset: u64) -> DecodeError {
        let reason = format!("column `{column}` of {table}: {}", self.0.text);
        let mut error = DecodeError::of_table(table, reason, offset);
        error.0.lacks = self.0.lacks;
        error
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.text)
    }
}

impl std::error::Error for ValueError {}
