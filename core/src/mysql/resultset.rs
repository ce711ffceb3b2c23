//! Decodes the answer to COM_STMT_EXECUTE (binary protocol) into Arrow batches. Its bytes may come in pieces
//! of any size.
//!
//! A packet has a length (3 bytes), a number (1, counts up from 1 and wraps) and a payload. A payload of
//! 0xffffff bytes continues in the next packet. The answer is: column count; a definition per column; EOF;
//! rows; EOF. ERR may come at any place. With `character_set_results` NULL, text comes in the column's own
//! character set. The definitions show whether that is so.
//!
//! No memory is allocated because of a length in the input. The decoder needs memory for what has arrived of
//! one row, and for one batch.

mod error;
mod packets;

use std::sync::Arc;

use arrow_array::RecordBatch;

use self::error::Result;
pub use self::error::ResultSetError;
use self::packets::Packets;
use crate::charset::{collation_charset, Charset};
use crate::column::{ColumnBuilder, TypeOptions};
use crate::cursor::Cursor;
use crate::error::{DecodeError, ValueError};
use crate::row_batch::RowBatch;
use crate::schema::{ColumnType, TableSchema};
use crate::temporal::{Date, DateTime, Time};

const OK: u8 = 0x00;
const EOF: u8 = 0xfe;
const ERR: u8 = 0xff;

const UNSIGNED_FLAG: u16 = 32;
const ENUM_FLAG: u16 = 256;
const SET_FLAG: u16 = 2048;
const BINARY_COLLATION: u16 = 63;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Count,
    /// Number of definitions that have arrived.
    Definitions(usize),
    DefinitionsEnd,
    Rows,
    Done,
}

pub struct ResultSetDecoder {
    packets: Packets,
    rows: RowBuilder,
    state: State,
}

impl ResultSetDecoder {
    pub fn new(
        table: Arc<TableSchema>,
        types: TypeOptions,
        batch_rows: usize,
        batch_bytes: usize,
    ) -> std::result::Result<Self, DecodeError> {
        let rows = RowBuilder { batch: RowBatch::new(table, types, batch_rows.max(1), batch_bytes)? };
        Ok(Self { packets: Packets::default(), rows, state: State::Count })
    }

    /// Takes bytes of the socket, and returns the batches that they complete. Must not be called again after
    /// an error.
    pub fn feed(&mut self, mut data: &[u8]) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        let Self { packets, rows, state } = self;
        while !data.is_empty() {
            packets.next(&mut data, |payload, offset| take(state, rows, payload, offset, &mut batches))?;
        }
        Ok(batches)
    }

    /// Whether the end of the rows has arrived.
    pub fn done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the definitions have arrived and fit the schema. Later errors are about values.
    pub fn columns_fit(&self) -> bool {
        matches!(self.state, State::DefinitionsEnd | State::Rows | State::Done)
    }

    pub fn rows(&self) -> u64 {
        self.rows.batch.total
    }

    /// The rows since the last batch. An error before `done`.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>> {
        if !self.done() {
            return Err(DecodeError::new("the answer ends before its last row", self.packets.offset).into());
        }
        Ok(if self.rows.batch.is_empty() { None } else { Some(self.rows.batch.finish(self.packets.offset)?) })
    }
}

/// Processes one packet, and returns the next state.
fn take(
    state: &mut State,
    rows: &mut RowBuilder,
    payload: &[u8],
    offset: u64,
    batches: &mut Vec<RecordBatch>,
) -> Result<()> {
    let first = payload.first().copied();
    if first == Some(ERR) && *state != State::Done {
        return Err(server_error(payload, offset));
    }
    let end = first == Some(EOF) && payload.len() < 9;
    *state = match *state {
        State::Count => {
            rows.check_count(payload, offset)?;
            State::Definitions(0)
        }
        State::Definitions(seen) if !end => {
            rows.check_definition(seen, payload, offset)?;
            match seen + 1 == rows.batch.builders.len() {
                true => State::DefinitionsEnd,
                false => State::Definitions(seen + 1),
            }
        }
        State::DefinitionsEnd if end => State::Rows,
        State::Rows if end => State::Done,
        State::Rows if first == Some(OK) => {
            if let Some(batch) = rows.push(payload, offset)? {
                batches.push(batch);
            }
            State::Rows
        }
        _ => return Err(DecodeError::new("a packet that cannot stand here", offset).into()),
    };
    Ok(())
}

fn server_error(payload: &[u8], offset: u64) -> ResultSetError {
    let mut cursor = Cursor::new(&payload[1..], offset);
    let Ok(code) = cursor.u16("error code") else {
        return DecodeError::new("an error packet without an error code", offset).into();
    };
    let rest = cursor.rest();
    let (sqlstate, message) = match rest {
        [b'#', state @ ..] if state.len() >= 5 => state.split_at(5),
        _ => (&b"HY000"[..], rest),
    };
    ResultSetError::Server {
        code,
        sqlstate: String::from_utf8_lossy(sqlstate).into_owned(),
        message: String::from_utf8_lossy(message).into_owned(),
    }
}

/// The rows of the answer.
struct RowBuilder {
    batch: RowBatch,
}

impl RowBuilder {
    fn check_count(&self, payload: &[u8], offset: u64) -> Result<()> {
        let count = Cursor::new(payload, offset).lenenc("column count")?;
        if count == self.batch.builders.len() as u64 {
            return Ok(());
        }
        let expected = self.batch.builders.len();
        Err(self.mismatch(format!("the answer has {count} columns, the schema {expected}"), offset))
    }

    /// Refuses a column whose values could not be read as the schema's: another name, type, sign, scale or
    /// character set. Names are UTF-8, since `character_set_results` is NULL.
    fn check_definition(&self, index: usize, payload: &[u8], offset: u64) -> Result<()> {
        let mut cursor = Cursor::new(payload, offset);
        for what in ["catalog", "database", "table", "original table"] {
            cursor.take_lenenc(what)?;
        }
        let name = cursor.take_lenenc("column")?;
        if name != self.batch.table.columns[index].name.as_bytes() {
            let (found, expected) = (String::from_utf8_lossy(name), &self.batch.table.columns[index].name);
            let reason = format!("a column is called `{found}` in the answer, `{expected}` in the schema");
            return Err(self.mismatch(reason, offset));
        }
        cursor.take_lenenc("original column")?;
        cursor.lenenc("length of the fixed fields")?;
        let collation = cursor.u16("character set")?;
        cursor.skip(4, "column length")?;
        let code = cursor.u8("column type")?;
        let flags = cursor.u16("column flags")?;
        let decimals = cursor.u8("decimals")?;
        let kind = self.batch.builders[index].kind();
        if fits(kind, code, flags, decimals) && charset_fits(kind, collation) {
            return Ok(());
        }
        let name = &self.batch.table.columns[index].name;
        Err(self.mismatch(
            format!(
                "column `{name}` is of type {code} (flags {flags:#x}, {decimals} decimals, \
                 collation {collation}) in the answer, but {} in the schema",
                self.batch.table.columns[index].kind
            ),
            offset,
        ))
    }

    fn mismatch(&self, reason: String, offset: u64) -> ResultSetError {
        DecodeError::of_table(
            self.batch.table.name(),
            format!("{}: {reason}", self.batch.table.name()),
            offset,
        )
        .into()
    }

    /// Appends a row: 0, null bitmap with an offset of two bits, then the values that are not null.
    fn push(&mut self, payload: &[u8], offset: u64) -> Result<Option<RecordBatch>> {
        let batch = if self.batch.is_full(payload.len()) { Some(self.batch.finish(offset)?) } else { None };
        let mut cursor = Cursor::new(payload, offset);
        cursor.skip(1, "row header")?;
        let nulls = cursor.take((self.batch.builders.len() + 9) / 8, "null bitmap")?;
        for (index, builder) in self.batch.builders.iter_mut().enumerate() {
            let bit = index + 2;
            if nulls[bit / 8] & 1 << (bit % 8) != 0 {
                builder.append_null();
                continue;
            }
            let start = cursor.offset();
            append_value(builder, &mut cursor)?.map_err(|error| {
                error.at(&self.batch.table.name(), &self.batch.table.columns[index].name, start)
            })?;
        }
        if !cursor.is_empty() {
            return Err(
                DecodeError::new("bytes left over behind the last value of a row", cursor.offset()).into()
            );
        }
        self.batch.count(payload.len());
        Ok(batch)
    }
}

/// Appends one value. The outer error: malformed input. The inner one: a value that its column cannot have.
#[inline]
fn append_value(
    builder: &mut ColumnBuilder,
    cursor: &mut Cursor<'_>,
) -> std::result::Result<std::result::Result<(), ValueError>, DecodeError> {
    Ok(match *builder.kind() {
        ColumnType::Integer { width, unsigned } => {
            // MEDIUMINT comes in four bytes.
            let bytes = if width == 3 { 4 } else { usize::from(width) };
            let value = cursor.uint_le(bytes, "integer")?;
            match unsigned {
                true => builder.append_u64(value),
                false => {
                    let unused = 64 - 8 * bytes as u32;
                    builder.append_i64((value << unused) as i64 >> unused)
                }
            }
        }
        ColumnType::Boolean => builder.append_i64(i64::from(cursor.u8("boolean")? != 0)),
        ColumnType::Year { .. } => builder.append_i64(cursor.u16("year")?.into()),
        ColumnType::Float => builder.append_f32(cursor.f32("float")?),
        ColumnType::Double => builder.append_f64(cursor.f64("double")?),
        ColumnType::Decimal { .. } => builder.append_decimal_text(cursor.take_lenenc("decimal")?),
        ColumnType::Bit { .. } => builder.append_bit_bytes(cursor.take_lenenc("bits")?),
        ColumnType::Date => builder.append_date(read_datetime(cursor)?.date),
        ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } => {
            builder.append_datetime(read_datetime(cursor)?)
        }
        ColumnType::Time { .. } => builder.append_time(read_time(cursor)?),
        ColumnType::Enum { .. } | ColumnType::Set { .. } => {
            builder.append_label_bytes(cursor.take_lenenc("label")?)
        }
        ColumnType::Network(_) => builder.append_network_text(cursor.take_lenenc("text")?),
        ColumnType::Json => builder.append_json_text(cursor.take_lenenc("JSON text")?),
        ColumnType::Text { .. }
        | ColumnType::Binary { .. }
        | ColumnType::Numeric
        | ColumnType::Interval
        | ColumnType::Geometry
        | ColumnType::Vector => builder.append_bytes(cursor.take_lenenc("string")?),
        // `fits` refuses it.
        ColumnType::List(_) => Err(ValueError::new("MySQL has no lists")),
    })
}

/// Length 0, 4, 7 or 11: year (2), month, day; hour, minute, second; microseconds (4). Missing parts are 0.
#[inline]
fn read_datetime(cursor: &mut Cursor<'_>) -> std::result::Result<DateTime, DecodeError> {
    let at = cursor.offset();
    let bytes = cursor.take_u8_prefixed("date")?;
    let mut fields = Cursor::new(bytes, at);
    let mut value = DateTime::default();
    if !matches!(bytes.len(), 0 | 4 | 7 | 11) {
        return Err(DecodeError::new(format!("a date of {} bytes", bytes.len()), at));
    }
    if bytes.len() >= 4 {
        value.date = Date { year: fields.u16("year")?, month: fields.u8("month")?, day: fields.u8("day")? };
    }
    if bytes.len() >= 7 {
        (value.hour, value.minute) = (fields.u8("hour")?, fields.u8("minute")?);
        value.second = fields.u8("second")?;
    }
    if bytes.len() == 11 {
        value.micros = fields.u32("microseconds")?;
    }
    let date = value.date;
    if date.year > 9999 || date.month > 12 || date.day > 31 || value.hour > 23 || value.minute > 59 {
        return Err(DecodeError::new("a date and time out of range", at));
    }
    if value.second > 59 || value.micros > 999_999 {
        return Err(DecodeError::new("a date and time out of range", at));
    }
    Ok(value)
}

/// Length 0, 8 or 12: sign, days (4), hours, minutes, seconds; microseconds (4).
#[inline]
fn read_time(cursor: &mut Cursor<'_>) -> std::result::Result<Time, DecodeError> {
    let at = cursor.offset();
    let bytes = cursor.take_u8_prefixed("time")?;
    let mut fields = Cursor::new(bytes, at);
    match bytes.len() {
        0 => return Ok(Time::default()),
        8 | 12 => {}
        other => return Err(DecodeError::new(format!("a time of {other} bytes"), at)),
    }
    let negative = fields.u8("sign")? != 0;
    let days = fields.u32("days")?;
    let hours = fields.u8("hours")?;
    let (minutes, seconds) = (fields.u8("minutes")?, fields.u8("seconds")?);
    let micros = if bytes.len() == 12 { fields.u32("microseconds")? } else { 0 };
    if days > 34 || hours > 23 || minutes > 59 || seconds > 59 || micros > 999_999 {
        return Err(DecodeError::new("a time out of range", at));
    }
    Ok(Time { negative, hours: days * 24 + u32::from(hours), minutes, seconds, micros })
}

/// Whether values of the answer's column can be read as `kind`. Numbers: enum_field_types of the server.
fn fits(kind: &ColumnType, code: u8, flags: u16, decimals: u8) -> bool {
    let label = flags & (ENUM_FLAG | SET_FLAG);
    let string = matches!(code, 15 | 249..=254);
    match *kind {
        ColumnType::Integer { width, unsigned } => {
            let expected = match width {
                1 => 1,
                2 => 2,
                3 => 9,
                4 => 3,
                _ => 8,
            };
            code == expected && unsigned == (flags & UNSIGNED_FLAG != 0)
        }
        ColumnType::Boolean => code == 1,
        ColumnType::Decimal { scale, .. } => code == 246 && decimals == scale,
        ColumnType::Float => code == 4,
        ColumnType::Double => code == 5,
        ColumnType::Bit { .. } => code == 16,
        ColumnType::Year { .. } => code == 13,
        ColumnType::Date => matches!(code, 10 | 14),
        ColumnType::DateTime { fsp } => matches!(code, 12 | 18) && decimals == fsp,
        ColumnType::Timestamp { fsp } => matches!(code, 7 | 17) && decimals == fsp,
        ColumnType::Time { fsp } => matches!(code, 11 | 19) && decimals == fsp,
        ColumnType::Enum { .. } => code == 247 || string && label == ENUM_FLAG,
        ColumnType::Set { .. } => code == 248 || string && label == SET_FLAG,
        ColumnType::Json => code == 245 || matches!(code, 249..=252),
        // MariaDB sends it as bytes.
        ColumnType::Vector => code == 242 || string && label == 0,
        ColumnType::Geometry => code == 255,
        ColumnType::Text { .. }
        | ColumnType::Binary { .. }
        | ColumnType::Network(_)
        | ColumnType::Numeric
        | ColumnType::Interval => string && label == 0,
        ColumnType::List(_) => false,
    }
}

/// Whether text comes in the character set with which it will be read. An unknown, newer collation is
/// accepted.
fn charset_fits(kind: &ColumnType, collation: u16) -> bool {
    let expected = match kind {
        ColumnType::Text { charset, .. } => *charset,
        ColumnType::Enum { charset, .. } | ColumnType::Set { charset, .. } => *charset,
        ColumnType::Binary { .. } => return collation == BINARY_COLLATION,
        _ => return true,
    };
    match collation_charset(collation).and_then(Charset::from_name) {
        Some(charset) => charset == expected,
        None => collation_charset(collation).is_none(),
    }
}

#[cfg(test)]
mod tests;
