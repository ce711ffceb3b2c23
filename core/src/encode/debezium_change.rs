//! The events that a change is in Debezium's formats.

use super::columns::Table;
use super::format::Change;
use super::image::Image;
use crate::error::Result;
use crate::rows::RowsKind;

/// The rows before and after an event.
pub type Images<'a> = (Option<Image<'a>>, Option<Image<'a>>);

/// Gives each event of a change to `write`, with its `op`: two if the key changed, a deletion and a creation.
#[inline]
pub fn each_event<'a>(
    table: &Table,
    change: &Change<'a>,
    of_snapshot: bool,
    mut write: impl FnMut(Images<'a>, u8) -> Result<()>,
) -> Result<()> {
    let (before, after) = (change.before(), change.after());
    match (change.kind, &before, &after) {
        (RowsKind::Update, Some(old), Some(new)) if table.key.iter().any(|index| !old.same(new, *index)) => {
            write((before, None), b'd')?;
            write((None, after), b'c')
        }
        (RowsKind::Update, ..) => write((before, after), b'u'),
        (RowsKind::Insert, ..) => write((None, after), if of_snapshot { b'r' } else { b'c' }),
        (RowsKind::Delete, ..) => write((before, None), b'd'),
    }
}
