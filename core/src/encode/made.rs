//! Row images with what rules have made of some of their columns.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};

use super::arrow_image::{append, Labels, Values};
use super::image::{Image, Place, Row};
use super::ruled::{PlaceOf, RuledTable, ROW};
use crate::error::{DecodeError, Result};
use crate::rows::RowsKind;

/// What the rules made of the images of one table, in the order in which they were collected.
pub struct Made {
    batch: RecordBatch,
    /// For each image, its row in the batch. `LEFT_OUT`: there is none.
    rows: Vec<u32>,
    /// The number of the next image.
    next: usize,
}

const LEFT_OUT: u32 = u32::MAX;

impl Made {
    /// The batch has the number of each row's image in its column `ROW`, in order. `images`: how many were
    /// collected.
    pub fn new(batch: RecordBatch, images: usize) -> Result<Self> {
        let fail = || DecodeError::new("rows that were transformed are not those that were collected", 0);
        let numbers = batch.column_by_name(ROW).and_then(|array| array.as_primitive_opt::<Int64Type>());
        let numbers = numbers.filter(|numbers| numbers.null_count() == 0).ok_or_else(fail)?.clone();
        let mut rows = vec![LEFT_OUT; images];
        let mut least = 0;
        for (row, number) in numbers.values().iter().enumerate() {
            let number = usize::try_from(*number).ok().filter(|number| *number >= least).ok_or_else(fail)?;
            *rows.get_mut(number).ok_or_else(fail)? = row as u32;
            least = number + 1;
        }
        Ok(Self { batch, rows, next: 0 })
    }

    /// Whether the image with this number is left.
    pub fn has(&self, number: usize) -> bool {
        self.rows.get(number).is_some_and(|row| *row != LEFT_OUT)
    }

    /// The rows of the next images: of one, or of the two of an update.
    pub fn take(&mut self, kind: RowsKind) -> (Option<usize>, Option<usize>) {
        let mut next = || {
            let row = self.rows.get(self.next).copied().filter(|row| *row != LEFT_OUT);
            self.next += 1;
            row.map(|row| row as usize)
        };
        match kind {
            RowsKind::Insert => (None, next()),
            RowsKind::Delete => (next(), None),
            RowsKind::Update => (next(), next()),
        }
    }

    /// The columns that were made, by their places in `table`.
    pub fn columns<'a>(batch: &'a RecordBatch, table: &RuledTable) -> Result<Vec<Option<Values<'a>>>> {
        let name = || table.target.schema.name();
        let each = table.origins.iter().zip(&table.target.columns).map(|(origin, column)| {
            if matches!(origin, PlaceOf::Kept { .. }) {
                return Ok(None);
            }
            let found = batch.column_by_name(&column.schema.name).and_then(|array| Values::of(array));
            let reason = || format!("rows of {}: column `{}` was not made", name(), column.schema.name);
            found.map(Some).ok_or_else(|| DecodeError::of_table(name(), reason(), 0))
        });
        each.collect()
    }

    pub fn batch(&self) -> RecordBatch {
        self.batch.clone() // shares its memory
    }
}

/// What is left of a change whose rows before and after it are there or not. None: nothing.
pub fn left((before, after): (Option<usize>, Option<usize>)) -> Option<RowsKind> {
    match (before, after) {
        (Some(_), Some(_)) => Some(RowsKind::Update),
        (Some(_), None) => Some(RowsKind::Delete),
        (None, Some(_)) => Some(RowsKind::Insert),
        (None, None) => None,
    }
}

/// The images of one change.
#[derive(Default)]
pub struct Images {
    pub bytes: Vec<u8>,
    pub row: Row,
}

impl Images {
    /// Makes the images of a change from those of the log, `source`. `rows`: those of the batch for the image
    /// before and the one after it.
    pub fn make(
        &mut self,
        table: &RuledTable,
        columns: &[Option<Values<'_>>],
        (source, bytes): (&Row, &[u8]),
        rows: (Option<usize>, Option<usize>),
        sequence: u64,
    ) -> Result<()> {
        self.bytes.clear();
        let Self { bytes: out, row } = self;
        let before = (rows.0, &source.before, &mut row.before);
        let after = (rows.1, &source.after, &mut row.after);
        for (row, places, made) in [before, after] {
            made.clear();
            let Some(row) = row else { continue };
            let image = Image { bytes, columns: places, placeholder: &[] };
            for ((origin, column), values) in table.origins.iter().zip(&table.target.columns).zip(columns) {
                let place = match (*origin, values) {
                    (PlaceOf::Kept { source }, _) => copied(image.place(source), &image, out),
                    (PlaceOf::Made { source: Some(source) }, _) if image.place(source) == Place::Absent => {
                        Place::Absent
                    }
                    (PlaceOf::Made { .. }, Some(values)) => append(column, &Labels::new(), values, row, out)
                        .map_err(|error| {
                            error.at(&table.target.schema.name(), &column.schema.name, sequence)
                        })?,
                    (PlaceOf::Made { .. }, None) => Place::Null,
                };
                made.push(place);
            }
        }
        Ok(())
    }
}

/// Copies a value into the bytes of another image.
fn copied(place: Place, image: &Image<'_>, out: &mut Vec<u8>) -> Place {
    let mut copy = |range: (u32, u32)| {
        let start = out.len() as u32;
        out.extend_from_slice(image.slice(range));
        (start, out.len() as u32)
    };
    match place {
        Place::Absent | Place::Unavailable | Place::Neutral | Place::Null => place,
        Place::Value { start, end } => {
            let (start, end) = copy((start, end));
            Place::Value { start, end }
        }
        Place::Changed { changes, document } => {
            Place::Changed { changes: copy(changes), document: document.map(&mut copy) }
        }
    }
}
