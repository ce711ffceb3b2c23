//! Decodes the rows of `COPY … TO STDOUT (FORMAT binary)` into Arrow batches. Its bytes may come in pieces of
//! any size (<https://www.postgresql.org/docs/current/sql-copy.html>, "Binary Format").
//!
//! A header has a signature, flags (4 bytes) and an extension with its length (4) before it. A row has the
//! number of its columns (2), then each value with its length (4) before it, which is -1 for a null. The end
//! is a row of -1 columns.
//!
//! No memory is allocated because of a length in the input. The decoder needs memory for what has arrived of
//! one row, and for one batch.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::types::PgType;
use super::value::Target;
use crate::column::TypeOptions;
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::row_batch::RowBatch;
use crate::schema::TableSchema;

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Rows,
    Done,
}

pub struct CopyDecoder {
    batch: RowBatch,
    targets: Vec<Target>,
    /// The beginning of a row whose end has not arrived, and its offset in the answer.
    pending: Vec<u8>,
    offset: u64,
    state: State,
}

impl CopyDecoder {
    /// `types`: for each column the type of the values that the server sends, of a domain that of its base.
    pub fn new(
        table: Arc<TableSchema>,
        types: Vec<PgType>,
        options: TypeOptions,
        batch_rows: usize,
        batch_bytes: usize,
    ) -> Result<Self> {
        let fail = |reason: String| DecodeError::of_table(table.name(), reason, 0);
        if types.len() != table.columns.len() {
            return Err(fail(format!("{} types for {} columns", types.len(), table.columns.len())));
        }
        let targets = table.columns.iter().zip(types).map(|(column, kind)| {
            let column = column.column_type().map_err(fail)?;
            Ok(Target::new(kind, column))
        });
        let targets = targets.collect::<Result<Vec<_>>>()?;
        let batch = RowBatch::new(table, options, batch_rows.max(1), batch_bytes)?;
        Ok(Self { batch, targets, pending: Vec::new(), offset: 0, state: State::Header })
    }

    /// Takes bytes of the answer, and returns the batches that they complete. Must not be called again after
    /// an error.
    pub fn feed(&mut self, data: &[u8]) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        if self.pending.is_empty() {
            let used = self.take(data, &mut batches)?;
            self.pending.extend_from_slice(&data[used..]);
        } else {
            let mut held = std::mem::take(&mut self.pending);
            held.extend_from_slice(data);
            let used = self.take(&held, &mut batches)?;
            held.drain(..used);
            self.pending = held;
        }
        Ok(batches)
    }

    /// Whether the end of the rows has arrived.
    pub fn done(&self) -> bool {
        self.state == State::Done
    }

    pub fn rows(&self) -> u64 {
        self.batch.total
    }

    /// The rows since the last batch. An error before `done`.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>> {
        if !self.done() {
            return Err(DecodeError::new("the answer ends before its last row", self.offset));
        }
        Ok(if self.batch.is_empty() { None } else { Some(self.batch.finish(self.offset)?) })
    }

    /// Takes whole rows, and returns how many bytes they have.
    fn take(&mut self, data: &[u8], batches: &mut Vec<RecordBatch>) -> Result<usize> {
        let mut used = 0;
        while used < data.len() {
            let rest = &data[used..];
            let taken = match self.state {
                State::Header => self.header(rest)?,
                State::Rows => self.row(rest, batches)?,
                State::Done => return Err(DecodeError::new("bytes behind the last row", self.offset)),
            };
            if taken == 0 {
                break;
            }
            used += taken;
            self.offset += taken as u64;
        }
        Ok(used)
    }

    /// The size of the header. 0: its end has not arrived.
    fn header(&mut self, data: &[u8]) -> Result<usize> {
        let known = data.len().min(SIGNATURE.len());
        if data[..known] != SIGNATURE[..known] {
            return Err(DecodeError::new("an answer that is no COPY in binary form", self.offset));
        }
        let Some(fields) = data.get(SIGNATURE.len()..SIGNATURE.len() + 8) else { return Ok(0) };
        if fields != [0; 8] {
            return Err(DecodeError::new("a COPY in another binary form", self.offset));
        }
        self.state = State::Rows;
        Ok(SIGNATURE.len() + 8)
    }

    /// Appends a row, and returns its size. 0: its end has not arrived.
    fn row(&mut self, data: &[u8], batches: &mut Vec<RecordBatch>) -> Result<usize> {
        let Some(count) = data.get(..2) else { return Ok(0) };
        let count = i16::from_be_bytes([count[0], count[1]]);
        if count == -1 {
            self.state = State::Done;
            return Ok(2);
        }
        if usize::try_from(count) != Ok(self.targets.len()) {
            let table = &self.batch.table;
            let reason = format!("a row of {count} columns; {} has {}", table.name(), self.targets.len());
            return Err(DecodeError::of_table(table.name(), reason, self.offset));
        }
        let Some(size) = self.size(data)? else { return Ok(0) };
        if self.batch.is_full(size) {
            batches.push(self.batch.finish(self.offset)?);
        }
        self.append(&data[2..size])?;
        self.batch.count(size);
        Ok(size)
    }

    /// The size of a row. None: its end has not arrived.
    fn size(&self, data: &[u8]) -> Result<Option<usize>> {
        let mut at = 2;
        for _ in &self.targets {
            let Some(length) = data.get(at..at + 4) else { return Ok(None) };
            let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
            if length < -1 {
                return Err(DecodeError::new("a value of a negative length", self.offset + at as u64));
            }
            at += 4 + length.max(0) as usize;
        }
        Ok((at <= data.len()).then_some(at))
    }

    /// `values`: those of a whole row.
    fn append(&mut self, values: &[u8]) -> Result<()> {
        let RowBatch { table, builders, .. } = &mut self.batch;
        let mut values = Cursor::new(values, self.offset);
        for ((target, builder), column) in self.targets.iter().zip(builders).zip(&table.columns) {
            let length = i32::from_be_bytes(*values.chunk("length of a value")?);
            if length < 0 {
                builder.append_null();
                continue;
            }
            let bytes = values.take(length as usize, "value")?;
            let taken = target.binary(bytes, builder);
            taken.map_err(|error| error.at(&table.name(), &column.name, self.offset))?;
        }
        Ok(())
    }
}
