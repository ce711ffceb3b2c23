//! Writes records, for receivers.

use super::{BEGIN, COMMIT, DEFINITION, EXECUTED, MESSAGE, MOVED, NOTE, ROWS, STATEMENT, USE};
use crate::records::append;
use crate::rows::RowsKind;
use crate::value_forms::put_bits;

/// Records of whole transactions, one after the other.
#[derive(Default)]
pub struct Records {
    pub bytes: Vec<u8>,
}

impl Records {
    /// `id`: see `series`.
    pub fn begin(&mut self, place: u64, commit_us: i64, id: &str) {
        let mut body = commit_us.to_le_bytes().to_vec();
        body.extend_from_slice(id.as_bytes());
        append(BEGIN, place, &body, &mut self.bytes);
    }

    /// `columns`: JSON with `key` and `columns`. Names have less than 64 KiB.
    pub fn definition(&mut self, place: u64, id: u32, (database, table): (&str, &str), columns: &str) {
        let mut body = id.to_le_bytes().to_vec();
        put_name(database, &mut body);
        put_name(table, &mut body);
        body.extend_from_slice(columns.as_bytes());
        append(DEFINITION, place, &body, &mut self.bytes);
    }

    /// The definition at a position of the file holds here, too.
    pub fn used(&mut self, place: u64, id: u32, at: u64, (database, table): (&str, &str)) {
        let mut body = id.to_le_bytes().to_vec();
        body.extend_from_slice(&at.to_le_bytes());
        put_name(database, &mut body);
        put_name(table, &mut body);
        append(USE, place, &body, &mut self.bytes);
    }

    /// `present`: the columns that the first images have, and those of the second ones of updates.
    pub fn rows(
        &mut self,
        place: u64,
        id: u32,
        kind: RowsKind,
        (present, present_after): (&[bool], &[bool]),
        images: &[u8],
    ) {
        let mut body = id.to_le_bytes().to_vec();
        body.push(match kind {
            RowsKind::Insert => 1,
            RowsKind::Update => 2,
            RowsKind::Delete => 3,
        });
        body.extend_from_slice(&(present.len() as u16).to_le_bytes());
        put_bits(present.iter().copied(), &mut body);
        if kind == RowsKind::Update {
            put_bits(present_after.iter().copied(), &mut body);
        }
        body.extend_from_slice(images);
        append(ROWS, place, &body, &mut self.bytes);
    }

    /// A row as the source's output plugin has sent it.
    pub fn message(&mut self, place: u64, id: u32, message: &[u8]) {
        let mut body = id.to_le_bytes().to_vec();
        body.extend_from_slice(message);
        append(MESSAGE, place, &body, &mut self.bytes);
    }

    pub fn statement(&mut self, place: u64, database: &str, json: &str) {
        let mut body = Vec::new();
        put_name(database, &mut body);
        body.extend_from_slice(json.as_bytes());
        append(STATEMENT, place, &body, &mut self.bytes);
    }

    pub fn note(&mut self, place: u64, json: &str) {
        append(NOTE, place, json.as_bytes(), &mut self.bytes);
    }

    pub fn commit(&mut self, place: u64) {
        append(COMMIT, place, &[], &mut self.bytes);
    }

    /// The source had executed these transactions where the log ends, also those that are not in it.
    pub fn executed(&mut self, set: &str) {
        append(EXECUTED, 0, set.as_bytes(), &mut self.bytes);
    }

    /// The source has advanced to a place without a transaction.
    pub fn moved(&mut self, place: u64) {
        append(MOVED, place, &[], &mut self.bytes);
    }
}

fn put_name(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
}
