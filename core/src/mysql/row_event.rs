//! Row events: which rows they have, and where their images begin.

use crate::error::Result;
use crate::mysql::event::{Event, EventKind, FormatDescription};
use crate::rows::{Present, RowsEvent, RowsKind};

impl<'a> RowsEvent<'a> {
    /// Reads only the table id, which is enough to skip events of other tables.
    pub fn table_id(event: &Event<'a>, format: &FormatDescription) -> Result<u64> {
        event.cursor().uint_le(format.table_id_size(event.header.kind), "table id")
    }

    pub fn parse(event: &Event<'a>, format: &FormatDescription) -> Result<Self> {
        let code = event.header.kind;
        let mut cursor = event.cursor();
        let (kind, has_extra) = match code {
            EventKind::WRITE_ROWS_V1 => (RowsKind::Insert, false),
            EventKind::UPDATE_ROWS_V1 => (RowsKind::Update, false),
            EventKind::DELETE_ROWS_V1 => (RowsKind::Delete, false),
            EventKind::WRITE_ROWS => (RowsKind::Insert, true),
            EventKind::UPDATE_ROWS | EventKind::PARTIAL_UPDATE_ROWS => (RowsKind::Update, true),
            EventKind::DELETE_ROWS => (RowsKind::Delete, true),
            other => {
                let name = other.name().unwrap_or("unknown");
                return Err(cursor.fail(format!("row events of type {} ({name}) cannot be decoded", other.0)));
            }
        };
        let table_id = cursor.uint_le(format.table_id_size(code), "table id")?;
        let flags = cursor.u16("row event flags")?;
        if has_extra {
            // The length counts itself.
            let length = cursor.u16("extra data length")?;
            let Some(length) = length.checked_sub(2) else {
                return Err(cursor.fail("extra data shorter than its length"));
            };
            cursor.skip(length.into(), "extra data")?;
        }
        let columns = cursor.lenenc_count(8, "column count")?;
        let present = Present::parse(&mut cursor, columns)?;
        let present_after = match kind {
            RowsKind::Update => Present::parse(&mut cursor, columns)?,
            _ => present,
        };
        Ok(Self {
            kind,
            table_id,
            flags,
            present,
            present_after,
            columns,
            partial_json: code == EventKind::PARTIAL_UPDATE_ROWS,
            absent_is_unchanged: !format.is_mariadb(),
            identity_only: false,
            record: None,
            images: cursor,
        })
    }
}

/// Whether this is the table id of a row event without rows, which only ends a statement.
pub fn is_dummy(table_id: u64) -> bool {
    table_id == 0x00ff_ffff
}
