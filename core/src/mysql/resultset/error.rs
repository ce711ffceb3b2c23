//! What can end a result set early.

use crate::error::DecodeError;

/// Why the rest of an answer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultSetError {
    Decode(DecodeError),
    /// The ERR packet of the server.
    Server {
        code: u16,
        sqlstate: String,
        message: String,
    },
}

impl From<DecodeError> for ResultSetError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

pub type Result<T> = std::result::Result<T, ResultSetError>;
