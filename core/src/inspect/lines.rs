//! The lines of changes.

use super::known_table::KnownTable;
use super::statement::utf8;
use super::value::write_json_string;
use crate::rows::RowsKind;

pub fn line(
    table: &str,
    kind: RowsKind,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    tail: &[u8],
    end: &[u8],
) -> String {
    let operation = match kind {
        RowsKind::Insert => "c",
        RowsKind::Update => "u",
        RowsKind::Delete => "d",
    };
    let mut out = b"{\"table\":".to_vec();
    write_json_string(table, &mut out);
    out.extend_from_slice(format!(",\"op\":\"{operation}\",\"before\":").as_bytes());
    out.extend_from_slice(before.as_deref().unwrap_or(b"null"));
    out.extend_from_slice(b",\"after\":");
    out.extend_from_slice(after.as_deref().unwrap_or(b"null"));
    out.extend_from_slice(tail);
    out.extend_from_slice(end);
    utf8(&out)
}

pub fn end_of_line(sequence: u64, table: &KnownTable, unknown: &[usize]) -> Vec<u8> {
    let mut end = sequence.to_string().into_bytes();
    for (count, index) in unknown.iter().enumerate() {
        end.extend_from_slice(if count == 0 { b",\"partial\":[" } else { b"," });
        write_json_string(&table.map.column_name(*index), &mut end);
    }
    end.extend_from_slice(if unknown.is_empty() { b"}" } else { b"]}" });
    end
}
