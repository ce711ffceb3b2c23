//! Layout `latest`: the last change of each key in a range.
//!
//! The range is read backwards, event by event and row by row. So the first change of a key that is found is
//! its last change. Of all other changes only the key is read. An update that changes the key counts as a
//! deletion of the old key and as a row of the new one. If its images lack columns, that row is a *moved*
//! one: its other values stood under the old key. Several ranges are reduced by reading them from the
//! last to the first with one shared set of keys, so only the keys are held in memory.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::batches::Batches;
use crate::column::{Layout, TypeOptions};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Result};
use crate::key::{Key, KeyReader};
use crate::output::{Change, Moved, Options, Output};
use crate::row_log::RowScan;
use crate::rows::RowsEvent;
use crate::rows::RowsKind;
use crate::seen_keys::{Columns, SeenKeys, SharedKeys};
use crate::table_map::TableMap;
use crate::window::Direction;

/// Which rows become rows of batches. All add their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Built {
    All,
    /// Those that lack columns and have not moved.
    Partial,
    Moved,
}

pub struct Latest<S: RowScan> {
    scan: S,
    output: Output,
    keys: KeyReader,
    bucket: Option<(u32, u32)>,
    /// Whether the column is generated, by its position in the table.
    generated: Vec<bool>,
    /// Keys found so far, in this range and in later ones.
    seen: SharedKeys,
    built: Built,
    /// Whether moved rows are taken.
    moves: bool,
    /// Rows that are not reduced yet; None: they have not been listed yet.
    events: Option<Vec<S::At>>,
    /// Images of the last event of `events` that are not built yet, in the order of the log.
    unbuilt: Vec<LastChange>,
    /// The images of one event with their keys, in order. Kept to reuse its memory.
    images: Vec<Image>,
}

/// An image that becomes a row of the batch, because it is the last change of its key.
struct LastChange {
    bytes: Range<u32>,
    /// For a row after an update: the image before the update.
    before: Range<u32>,
    deleted: bool,
    after: bool,
    moved: bool,
}

struct Image {
    key: Key,
    bytes: Range<u32>,
}

impl<S: RowScan> Latest<S> {
    pub fn new(scan: S, options: &Options, seen: SharedKeys) -> Result<Self> {
        let mut output = Output::new(scan.table(), options)?;
        output.set_dialect(scan.dialect());
        let built = if options.moved == Moved::Only { Built::Moved } else { Built::All };
        Ok(Self {
            output,
            keys: KeyReader::new(scan.table(), options.types)?
                .with_defaults(scan.table(), options.defaults.as_ref()),
            generated: scan.table().columns.iter().map(|column| column.generated.is_some()).collect(),
            scan,
            bucket: options.bucket,
            seen,
            built,
            moves: options.moved != Moved::Refused,
            events: None,
            unbuilt: Vec::new(),
            images: Vec::new(),
        })
    }

    /// Builds only rows that lack columns, and no moved ones. `seen` still gets all keys.
    pub fn of_partial_rows(
        scan: S,
        types: TypeOptions,
        defaults: Option<RecordBatch>,
        seen: SharedKeys,
    ) -> Result<Self> {
        let options = Options {
            partial_images: true,
            moved: Moved::Taken,
            types,
            defaults,
            ..Options::of(Layout::Latest)
        };
        Ok(Self { built: Built::Partial, ..Self::new(scan, &options, seen)? })
    }

    /// Builds the rows of one event that are the last change of their key, until the batch is full.
    fn reduce(&mut self, rows_at: &S::At) -> Result<()> {
        let map = self.scan.map(rows_at);
        self.output.set_map(&map);
        let columns = self.scan.table().columns.len();
        let (commit_us, offset) = (self.scan.commit_us(rows_at), self.scan.offset(rows_at));
        let rows = self.scan.rows(rows_at, &map, Direction::Backward)?;
        self.output.set_rows(&rows);
        if self.unbuilt.is_empty() {
            read_keys(&rows, &map, &mut self.keys, &mut self.images)?;
            // Generated columns that MariaDB leaves out are computed, or `Output` refuses the row.
            let generated = &self.generated;
            let derived = |index: usize| !rows.absent_is_unchanged && generated.get(index) == Some(&true);
            let known = (!rows.after_is_whole())
                .then(|| Columns::of(columns, |index| rows.after_has(index) || derived(index)));
            let partial = known.as_ref().filter(|known| !known.all());
            let wanted = |key: Key| self.bucket.is_none_or(|(share, count)| key.bucket(count) == share);
            let mut seen = self.seen.lock();
            last_changes(rows.kind, &self.images, &mut seen, partial, wanted, &mut self.unbuilt);
            if !self.moves && self.unbuilt.iter().any(|change| change.moved) {
                return Err(DecodeError::of_moved(map.name(), MOVED, offset));
            }
            self.unbuilt.reverse();
            self.unbuilt.retain(|change| match self.built {
                Built::All => true,
                Built::Partial => partial.is_some() && change.after && !change.moved,
                Built::Moved => change.moved,
            });
        }
        let mut images = rows.images;
        let (base, bytes) = (images.offset(), images.rest());
        let at = |range: &Range<u32>| {
            Cursor::new(&bytes[range.start as usize..range.end as usize], base + u64::from(range.start))
        };
        while let Some(change) = self.unbuilt.pop() {
            let mut image = at(&change.bytes);
            if change.after {
                let before = at(&change.before);
                self.output.append_after(before, &mut image, &map, &rows, commit_us)?;
            } else {
                let change = if change.deleted { Change::Delete } else { Change::Insert };
                self.output.append(&mut image, &map, rows.present, change, commit_us)?;
            }
            if self.output.is_full() {
                break;
            }
        }
        Ok(())
    }
}

impl<S: RowScan> Batches for Latest<S> {
    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.events.is_none() {
            let mut events = Vec::new();
            while let Some(rows) = self.scan.next_rows()? {
                events.push(rows);
            }
            self.events = Some(events);
        }
        while !self.output.is_full() {
            let Some(rows) = self.events.as_ref().and_then(|events| events.last().copied()) else { break };
            self.reduce(&rows).map_err(|error| self.scan.locate(error))?;
            if self.unbuilt.is_empty() {
                self.events.as_mut().map(Vec::pop);
            }
        }
        self.output.finish().map_err(|error| self.scan.locate(error))
    }
}

/// Lists all images of the event with their keys. An update has two images per row.
fn read_keys<'a>(
    rows: &RowsEvent<'a>,
    map: &Arc<TableMap>,
    keys: &mut KeyReader,
    images: &mut Vec<Image>,
) -> Result<()> {
    images.clear();
    keys.set_map(map);
    keys.set_inserts(rows.kind == RowsKind::Insert);
    let mut cursor = rows.images;
    let first = cursor.position();
    let (mut before, mut after) = (cursor, false);
    while !cursor.is_empty() || after {
        let start = cursor.position() - first;
        let key = if after {
            keys.read_after(before, &mut cursor, map, rows)?
        } else {
            before = cursor;
            keys.read(&mut cursor, map, rows.present)?
        };
        let end = cursor.position() - first;
        let Some(bytes) =
            u32::try_from(end).ok().map(|end| start as u32..end).filter(|bytes| !bytes.is_empty())
        else {
            return Err(cursor.fail("row images without columns"));
        };
        images.push(Image { key, bytes });
        after = rows.kind == RowsKind::Update && !after;
    }
    Ok(())
}

/// Reads the images of an event backwards and collects those that are the last change of their key, the last
/// one first. `partial`: the columns that rows have after an update, if they lack some.
fn last_changes(
    kind: RowsKind,
    images: &[Image],
    seen: &mut SeenKeys,
    partial: Option<&Columns>,
    wanted: impl Fn(Key) -> bool,
    out: &mut Vec<LastChange>,
) {
    let note = |seen: &mut SeenKeys, image: &Image, deleted, out: &mut Vec<LastChange>| {
        if wanted(image.key) && seen.insert(image.key) {
            let bytes = image.bytes.clone();
            out.push(LastChange { bytes, before: 0..0, deleted, after: false, moved: false });
        }
    };
    match kind {
        RowsKind::Insert => images.iter().rev().for_each(|image| note(seen, image, false, out)),
        RowsKind::Delete => images.iter().rev().for_each(|image| note(seen, image, true, out)),
        RowsKind::Update => {
            for row in images.chunks(2).rev() {
                let [before, after] = row else { continue };
                // What stood under the new key before a move does not count.
                let moved = partial.is_some() && before.key != after.key;
                let matters = wanted(after.key)
                    && match partial.filter(|_| !moved) {
                        None => seen.insert(after.key),
                        Some(columns) => seen.add(after.key, columns),
                    };
                if matters {
                    let (bytes, before) = (after.bytes.clone(), before.bytes.clone());
                    out.push(LastChange { bytes, before, deleted: false, after: true, moved });
                }
                // An unchanged key was just added, so this matters only if the update changed the key.
                if before.key != after.key {
                    note(seen, before, true, out);
                }
            }
        }
    }
}

const MOVED: &str = "an update changes the key, and its row images lack columns: what stood there under the \
                     old key is not in the log; the source needs binlog_row_image = FULL, or in PostgreSQL, \
                     REPLICA IDENTITY FULL";

/// Calls `take` with the keys of both images of every row in the range.
pub fn for_each_key<S: RowScan>(scan: &mut S, keys: &mut KeyReader, mut take: impl FnMut(Key)) -> Result<()> {
    let mut images = Vec::new();
    while let Some(rows_at) = scan.next_rows()? {
        let map = scan.map(&rows_at);
        let read = read_event_keys(scan, &rows_at, &map, keys, &mut images);
        read.map_err(|error| scan.locate(error))?;
        images.iter().for_each(|image| take(image.key));
    }
    Ok(())
}

fn read_event_keys<S: RowScan>(
    scan: &mut S,
    rows_at: &S::At,
    map: &Arc<TableMap>,
    keys: &mut KeyReader,
    images: &mut Vec<Image>,
) -> Result<()> {
    read_keys(&scan.rows(rows_at, map, Direction::Forward)?, map, keys, images)
}
