//! ERR packets.

use crate::cursor::Cursor;
use crate::error::Result;

/// What the server said instead of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    pub code: u16,
    pub sqlstate: String,
    pub message: String,
}

impl ServerError {
    pub fn parse(packet: &[u8], offset: u64) -> Result<ServerError> {
        let mut cursor = Cursor::new(packet, offset);
        cursor.skip(1, "error mark")?;
        let code = cursor.u16("error code")?;
        let text = String::from_utf8_lossy(cursor.rest()).into_owned();
        let (sqlstate, message) = match text.strip_prefix('#') {
            Some(rest) if rest.is_char_boundary(5) && rest.len() >= 5 => {
                (rest[..5].to_owned(), rest[5..].to_owned())
            }
            _ => (String::from("HY000"), text),
        };
        Ok(ServerError { code, sqlstate, message })
    }
}
