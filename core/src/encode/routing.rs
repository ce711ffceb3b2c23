//! Which partition a message belongs to: hashes of a row's columns, and updates that move a row to another
//! partition. The hash is a number from 0; its remainder by the number of partitions is the partition.

use super::canal_value::write_text;
use super::columns::Table;
use super::format::{Change, EventFacts, Format};
use super::image::{Image, Row};
use super::json_form::Tools;
use super::messages::Messages;
use super::route::{By, Deciding};
use crate::error::Result;
use crate::rows::RowsKind;
use crate::transaction::Transaction;

/// Scratch memory for hashes.
#[derive(Default)]
pub struct Hashing {
    tools: Tools,
    text: Vec<u8>,
}

/// Whether an update changes the columns that decide the partition.
fn moves(route: &Deciding, row: &Row, bytes: &[u8]) -> bool {
    let before = row.image(&row.before, bytes);
    let after = row.image(&row.after, bytes);
    route.by != By::Transaction && route.columns.iter().any(|index| !before.same(&after, *index))
}

/// The hash of a row. None: the key of its message decides.
fn hash_of(
    route: &Deciding,
    (table, transaction): (&Table, &Transaction),
    image: &Image<'_>,
    hashing: &mut Hashing,
) -> Result<Option<u32>> {
    let Hashing { tools, text } = hashing;
    text.clear();
    match route.by {
        By::Key => Ok(None),
        By::Transaction if transaction.start == transaction.end => Ok(None),
        By::Transaction => Ok(Some(murmur2(transaction.end.to_string().as_bytes()))),
        By::Columns => {
            for index in &route.columns {
                write_text(table, *index, image, (false, tools), text)?;
            }
            Ok(Some(murmur2(text)))
        }
        By::Canal { database } => {
            let mut hash = if database { java_hash(table.database.as_bytes()) } else { 0 };
            for index in &route.columns {
                text.clear();
                write_text(table, *index, image, (true, tools), text)?;
                hash ^= java_hash(text);
            }
            Ok(Some(hash.unsigned_abs()))
        }
    }
}

/// Encodes a row, and marks its messages with its hash. An update that changes the columns of the route is
/// a deletion and an insertion, each in the partition of its row. `open`: whether the format has begun the
/// event.
pub fn change(
    route: &Deciding,
    (table, transaction, facts): (&Table, &Transaction, &EventFacts<'_>),
    change: &Change<'_>,
    format: &mut dyn Format,
    (open, hashing): (&mut bool, &mut Hashing),
    out: &mut Messages,
) -> Result<()> {
    hashing.tools.style = facts.style;
    if change.kind != RowsKind::Update || !moves(route, change.row, change.bytes) {
        if !*open {
            format.event(transaction, facts, table)?;
            *open = true;
        }
        let first = out.len();
        format.change(table, change, out)?;
        out.mark(first, hash_of(route, (table, transaction), &change.newest(), hashing)?);
        return Ok(());
    }
    if *open {
        format.end_event(table, out);
        *open = false;
    }
    for kind in [RowsKind::Delete, RowsKind::Insert] {
        let part = Change { kind, last: change.last && kind == RowsKind::Insert, ..*change };
        let first = out.len();
        format.event(transaction, &EventFacts { kind, ..*facts }, table)?;
        format.change(table, &part, out)?;
        format.end_event(table, out);
        out.mark(first, hash_of(route, (table, transaction), &part.newest(), hashing)?);
    }
    Ok(())
}

/// The hash of Kafka's own partitioners.
pub fn murmur2(data: &[u8]) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mut value = 0x9747_b28c ^ data.len() as u32;
    let mut parts = data.chunks_exact(4);
    for part in &mut parts {
        let mut word = u32::from_le_bytes(part.try_into().unwrap_or_default()).wrapping_mul(FACTOR);
        word = (word ^ word >> 24).wrapping_mul(FACTOR);
        value = value.wrapping_mul(FACTOR) ^ word;
    }
    let rest = parts.remainder();
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0, |word: u32, byte| word << 8 | u32::from(*byte));
        value = (value ^ word).wrapping_mul(FACTOR);
    }
    value = (value ^ value >> 13).wrapping_mul(FACTOR);
    (value ^ value >> 15) & 0x7fff_ffff
}

/// `String.hashCode` of Java, over its UTF-16 units.
fn java_hash(text: &[u8]) -> i32 {
    let text = String::from_utf8_lossy(text);
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::{java_hash, murmur2};

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(murmur2(b"foobar"), (-790_332_482_i32 & 0x7fff_ffff) as u32);
        assert_eq!(murmur2(b"21"), (-973_932_308_i32 & 0x7fff_ffff) as u32);
        assert_eq!(java_hash("hello".as_bytes()), 99_162_322);
        assert_eq!(java_hash("polygenelubricants".as_bytes()), i32::MIN);
    }
}
