//! QUERY events: statements of transaction control, DDL, and statement-format changes.

use super::file::{FileEvents, RawEvent};
use crate::charset::{append_utf8, collation_charset, Charset};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::mysql::checksum::Checksum;
use crate::mysql::event::{Event, EventKind, FormatDescription};
use crate::mysql::mariadb;
use crate::segment_file::SegmentFile;

/// A QUERY event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub sql: String,
    pub database: String,
    pub timestamp: u32,
    pub thread_id: u32,
    pub error_code: u16,
    /// `character_set_client` of the session, which `sql` was converted from.
    pub charset: Option<&'static str>,
    pub sql_mode: Option<u64>,
}

impl Statement {
    pub fn parse(event: &Event<'_>, format: &FormatDescription) -> Result<Self> {
        let mut cursor = event.cursor();
        let thread_id = cursor.u32("thread id")?;
        cursor.skip(4, "execution time")?;
        let database_length = cursor.u8("length of the database name")?;
        let error_code = cursor.u16("error code")?;
        let mut statement = Self {
            sql: String::new(),
            database: String::new(),
            timestamp: event.header.timestamp,
            thread_id,
            error_code,
            charset: None,
            sql_mode: None,
        };
        // Before 5.0 there were no status variables.
        if format.post_header_size(EventKind::QUERY).is_none_or(|size| size >= 13) {
            let offset = cursor.offset() + 2;
            let status = cursor.take_prefixed(2, "status variables")?;
            statement.read_status(Cursor::new(status, offset))?;
        }
        statement.database = utf8(cursor.take(database_length.into(), "database name")?);
        cursor.skip(1, "end of the database name")?;
        let sql = cursor.rest();
        statement.sql = match statement.charset.and_then(Charset::from_name) {
            Some(charset) => {
                let mut text = Vec::with_capacity(sql.len());
                charset.append(sql, &mut text);
                utf8(&text)
            }
            None => utf8(sql),
        };
        Ok(statement)
    }

    /// Reads the event's status variables, up to the first unknown one: its length is unknown, too.
    fn read_status(&mut self, mut cursor: Cursor<'_>) -> Result<()> {
        const WHAT: &str = "status variable";
        while !cursor.is_empty() {
            match cursor.u8(WHAT)? {
                0 | 3 | 10 => cursor.skip(4, WHAT)?,
                1 => self.sql_mode = Some(cursor.u64(WHAT)?),
                2 => {
                    cursor.take_u8_prefixed(WHAT)?;
                    cursor.skip(1, WHAT)?;
                }
                4 => {
                    self.charset = collation_charset(cursor.u16(WHAT)?);
                    cursor.skip(4, WHAT)?;
                }
                5 | 6 => drop(cursor.take_u8_prefixed(WHAT)?),
                7 | 8 => cursor.skip(2, WHAT)?,
                9 => cursor.skip(8, WHAT)?,
                _ => break,
            }
        }
        Ok(())
    }
}

/// The statement at a position of a binlog file.
pub fn read_statement(file: &SegmentFile, position: u64) -> Result<Statement> {
    let read = || {
        let mut events = FileEvents::open(file, None)?;
        let mut raw = RawEvent::empty();
        // The format description comes first; it says how the others are written.
        events.next_into(&mut raw)?;
        if raw.offset != position {
            events.seek(position)?;
            if !events.next_into(&mut raw)? {
                return Err(DecodeError::new("the file ends here", position));
            }
        }
        let unpacked;
        let mut event = raw.event()?;
        if mariadb::is_compressed(event.header.kind.0) {
            unpacked = mariadb::unpack_event(event.raw, event.body, Checksum::None, position)?;
            event = Event::parse(&unpacked, position, Checksum::None)?;
        }
        match event.header.kind {
            EventKind::QUERY => Statement::parse(&event, events.format()),
            other => Err(DecodeError::new(format!("event type {} is not a QUERY event", other.0), position)),
        }
    };
    read().map_err(|error| error.in_file(file.name()))
}

pub fn utf8(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len());
    append_utf8(bytes, &mut text);
    String::from_utf8(text).unwrap_or_default()
}
