//! Layout `changelog`: every row image of a range, in log order.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::batches::Batches;
use crate::column::Walk;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::key::KeyReader;
use crate::output::{Change, Options, Output};
use crate::row_log::RowScan;
use crate::rows::RowsKind;
use crate::rows::{skip_image, RowsEvent};
use crate::table_map::TableMap;
use crate::window::Direction;

pub struct Changelog<S: RowScan> {
    scan: S,
    output: Output,
    before_images: bool,
    foreign_key_checks: bool,
    bucket: Option<Bucket>,
    /// Steps over images that are not decoded.
    skip: Option<Walk>,
    /// The rows that are decoded now, and how many bytes of their images were decoded.
    open: Option<(S::At, usize)>,
}

struct Bucket {
    keys: KeyReader,
    share: u32,
    count: u32,
}

impl Bucket {
    /// Whether the row at the cursor belongs to the bucket. The cursor moves behind its image.
    fn wants(&mut self, image: &mut Cursor<'_>, map: &TableMap, rows: &RowsEvent<'_>) -> Result<bool> {
        self.keys.set_inserts(rows.kind == RowsKind::Insert);
        Ok(self.keys.read(image, map, rows.present)?.bucket(self.count) == self.share)
    }

    /// Whether the row after an update belongs to the bucket.
    fn wants_after<'a>(
        &mut self,
        before: Cursor<'a>,
        image: &mut Cursor<'a>,
        map: &TableMap,
        rows: &RowsEvent<'a>,
    ) -> Result<bool> {
        Ok(self.keys.read_after(before, image, map, rows)?.bucket(self.count) == self.share)
    }
}

impl<S: RowScan> Changelog<S> {
    pub fn new(scan: S, options: &Options) -> Result<Self> {
        let bucket = match options.bucket {
            None => None,
            Some((share, count)) => {
                let keys = KeyReader::new(scan.table(), options.types)?;
                let keys = keys.with_defaults(scan.table(), options.defaults.as_ref());
                Some(Bucket { keys, share, count })
            }
        };
        let mut output = Output::new(scan.table(), options)?;
        output.set_dialect(scan.dialect());
        let Options { before_images, foreign_key_checks, .. } = *options;
        Ok(Self { scan, output, before_images, foreign_key_checks, bucket, skip: None, open: None })
    }

    /// Decodes rows until they end (None) or the batch is full.
    fn decode(&mut self, rows_at: &S::At, done: usize) -> Result<Option<usize>> {
        let map = self.scan.map(rows_at);
        self.output.set_map(&map);
        if let Some(bucket) = &mut self.bucket {
            bucket.keys.set_map(&map);
        }
        let skip = match &mut self.skip {
            Some(skip) if skip.is_of(&map) => skip,
            skip => skip.insert(Walk::new(&map, |_| None)),
        };
        let commit_us = self.scan.commit_us(rows_at);
        let rows = self.scan.rows(rows_at, &map, Direction::Forward)?;
        self.output.set_rows(&rows);
        if self.foreign_key_checks && rows.flags & RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS != 0 {
            return Ok(None);
        }
        let mut images = rows.images;
        let first = images.position();
        images.skip(done, "rows done before")?;
        while !images.is_empty() {
            if self.output.is_full() {
                return Ok(Some(images.position() - first));
            }
            let before = images;
            let change = match rows.kind {
                RowsKind::Insert => Change::Insert,
                RowsKind::Delete => Change::Delete,
                RowsKind::Update => Change::UpdatePreimage,
            };
            let mut ahead = images;
            if change == Change::UpdatePreimage && !self.before_images {
                match rows.present.is_full() {
                    true => skip.run(&mut images, rows.present, &mut [])?,
                    false => skip_image(&mut images, &map, rows.present)?,
                }
            } else if self.bucket.as_mut().map_or(Ok(true), |bucket| bucket.wants(&mut ahead, &map, &rows))? {
                self.output.append(&mut images, &map, rows.present, change, commit_us)?;
            } else {
                images = ahead;
            }
            if rows.kind == RowsKind::Update {
                let mut ahead = images;
                let bucket = self.bucket.as_mut();
                if bucket.map_or(Ok(true), |bucket| bucket.wants_after(before, &mut ahead, &map, &rows))? {
                    self.output.append_after(before, &mut images, &map, &rows, commit_us)?;
                } else {
                    images = ahead;
                }
            }
            if images.position() == before.position() {
                return Err(images.fail("row images without columns"));
            }
        }
        Ok(None)
    }
}

impl<S: RowScan> Batches for Changelog<S> {
    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while !self.output.is_full() {
            let (rows, done) = match self.open.take() {
                Some(open) => open,
                None => match self.scan.next_rows()? {
                    Some(rows) => (rows, 0),
                    None => break,
                },
            };
            self.open =
                self.decode(&rows, done).map_err(|error| self.scan.locate(error))?.map(|done| (rows, done));
        }
        self.output.finish().map_err(|error| self.scan.locate(error))
    }
}
