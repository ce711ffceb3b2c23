//! Layout `latest`: the last change of each key in a range.
//!
//! The range is walked backwards, event by event and row by row: the first change met of a key is its last,
//! all others are only read as far as their key. An update that moves a key leaves its new key alive and its
//! old key deleted. Several ranges are reduced by walking them from the last to the first with one set of
//! keys between them, so nothing but the keys is held in memory.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hashbrown::HashSet;

use crate::cursor::Cursor;
use crate::error::Result;
use crate::event::RowsKind;
use crate::key::{Key, KeyReader};
use crate::log_file::Direction;
use crate::output::{Change, Options, Output};
use crate::reduce::SharedKeys;
use crate::rows::RowsEvent;
use crate::scan::{open_rows, RangeScan, RowsAt};
use crate::table_map::TableMap;

pub struct Latest {
    scan: RangeScan,
    output: Output,
    keys: KeyReader,
    bucket: Option<(u32, u32)>,
    /// Keys met so far, here and in later ranges.
    seen: SharedKeys,
    /// Row events not yet reduced; None: the range was not yet looked through.
    events: Option<Vec<RowsAt>>,
    /// Images of the event at the end of `events` that survive, the last first.
    open: Vec<Survivor>,
    /// Reused: the images of one event with their keys, in order.
    images: Vec<Image>,
}

/// An image that is to be built.
struct Survivor {
    bytes: Range<u32>,
    deleted: bool,
    after: bool,
}

struct Image {
    key: Key,
    bytes: Range<u32>,
}

impl Latest {
    pub fn new(scan: RangeScan, options: &Options, seen: SharedKeys) -> Result<Self> {
        Ok(Self {
            output: Output::new(scan.table(), options)?,
            keys: KeyReader::new(scan.table(), options.types)?,
            scan,
            bucket: options.bucket,
            seen,
            events: None,
            open: Vec::new(),
            images: Vec::new(),
        })
    }

    pub fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
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
            if self.open.is_empty() {
                self.events.as_mut().map(Vec::pop);
            }
        }
        self.output.finish().map_err(|error| self.scan.locate(error))
    }

    /// Builds survivors of the event until there are none left or the batch is full.
    fn reduce(&mut self, rows_at: &RowsAt) -> Result<()> {
        let map = self.scan.map(rows_at);
        let (event, format) = self.scan.event(rows_at, Direction::Backward)?;
        let rows = open_rows(&event, format, &map)?;
        if self.open.is_empty() {
            read_keys(&rows, &map, &mut self.keys, &mut self.images)?;
            let wanted = |key: Key| self.bucket.is_none_or(|(share, count)| key.bucket(count) == share);
            survivors(rows.kind, &self.images, &mut self.seen.lock(), wanted, &mut self.open);
            self.open.reverse();
        }
        let mut images = rows.images;
        let (base, bytes) = (images.offset(), images.rest());
        while let Some(survivor) = self.open.pop() {
            let start = survivor.bytes.start;
            let mut image =
                Cursor::new(&bytes[start as usize..survivor.bytes.end as usize], base + u64::from(start));
            let present = if survivor.after { rows.present_after } else { rows.present };
            let change = if survivor.deleted { Change::Delete } else { Change::Insert };
            self.output.append(&mut image, &map, present, change, rows_at.commit_us)?;
            if self.output.is_full() {
                break;
            }
        }
        Ok(())
    }
}

/// All images of the event with their keys. Updates have two for each row.
fn read_keys(
    rows: &RowsEvent<'_>,
    map: &TableMap,
    keys: &mut KeyReader,
    images: &mut Vec<Image>,
) -> Result<()> {
    images.clear();
    let mut cursor = rows.images;
    let first = cursor.position();
    let mut after = false;
    while !cursor.is_empty() || after {
        let start = cursor.position() - first;
        let key = keys.read(&mut cursor, map, if after { rows.present_after } else { rows.present })?;
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

/// Goes backwards through the images of an event and notes what is the last of its key, the last first.
fn survivors(
    kind: RowsKind,
    images: &[Image],
    seen: &mut HashSet<Key>,
    wanted: impl Fn(Key) -> bool,
    out: &mut Vec<Survivor>,
) {
    let mut note = |image: &Image, deleted, after| {
        if wanted(image.key) && seen.insert(image.key) {
            out.push(Survivor { bytes: image.bytes.clone(), deleted, after });
        }
    };
    match kind {
        RowsKind::Insert => images.iter().rev().for_each(|image| note(image, false, false)),
        RowsKind::Delete => images.iter().rev().for_each(|image| note(image, true, false)),
        RowsKind::Update => {
            for row in images.chunks(2).rev() {
                let [before, after] = row else { continue };
                note(after, false, true);
                // The same key was just noted, so this only counts where the key moved.
                note(before, true, false);
            }
        }
    }
}

/// Both images of every row event of the range, key by key.
pub fn for_each_key(scan: &mut RangeScan, keys: &mut KeyReader, mut take: impl FnMut(Key)) -> Result<()> {
    let mut images = Vec::new();
    while let Some(rows_at) = scan.next_rows()? {
        let map = scan.map(&rows_at);
        let read = read_event_keys(scan, &rows_at, &map, keys, &mut images);
        read.map_err(|error| scan.locate(error))?;
        images.iter().for_each(|image| take(image.key));
    }
    Ok(())
}

fn read_event_keys(
    scan: &mut RangeScan,
    rows_at: &RowsAt,
    map: &TableMap,
    keys: &mut KeyReader,
    images: &mut Vec<Image>,
) -> Result<()> {
    let (event, format) = scan.event(rows_at, Direction::Forward)?;
    read_keys(&open_rows(&event, format, map)?, map, keys, images)
}
