//! Builds batches from row images: the table's columns, and those that Penstock adds.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_buffer::{BooleanBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::column::{arrow_schema, ColumnBuilder, Layout, TypeOptions, Walk, BASE};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Lacks, Result, ValueError};
use crate::literal::Literals;
use crate::pool;
use crate::row_log::Dialect;
use crate::rows::{missing_column, walk_image, Present, RowSink, RowsEvent, Taken};
use crate::schema::{ColumnSchema, TableSchema};
use crate::table_map::TableMap;

/// Rows of a batch. Few enough that two batches, one being built and one in use, stay in the processor's
/// cache.
pub const BATCH_ROWS: usize = 16_384;
/// Bytes of row images that end a batch.
pub const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// How to decode a range.
#[derive(Debug, Clone)]
pub struct Options {
    pub layout: Layout,
    /// Names of the columns to decode. None: all.
    pub columns: Option<Vec<String>>,
    /// Changelog: whether an update also gives a row for the image before it.
    pub before_images: bool,
    /// Changelog: only rows written by sessions that had foreign keys checked.
    pub foreign_key_checks: bool,
    /// Changelog: accept images before a change that have only what identifies the row
    /// (`RowsEvent::identity_only`). Other columns are null in them.
    pub identity_images: bool,
    /// Only the rows of bucket i of n: see `Key::bucket`.
    pub bucket: Option<(u32, u32)>,
    pub types: TypeOptions,
    /// Accept rows whose images lack columns. Their `_penstock_present` says which columns they have.
    pub partial_images: bool,
    /// Layout `latest`: what becomes of rows that lack columns and have another key than before.
    pub moved: Moved,
    /// The values of columns that an insert leaves out: a batch of one row, with the columns whose values are
    /// known.
    pub defaults: Option<RecordBatch>,
    /// Accept rows whose images lack generated columns (MariaDB). Their `_penstock_base` has the values of
    /// these columns as SQL literals. The caller asks the server to compute the generated columns from them.
    pub base: Option<Vec<String>>,
    pub batch_rows: usize,
    pub batch_bytes: usize,
}

impl Options {
    /// The default options: all columns of all keys.
    pub fn of(layout: Layout) -> Self {
        Self {
            layout,
            columns: None,
            before_images: true,
            foreign_key_checks: false,
            identity_images: false,
            bucket: None,
            types: TypeOptions::default(),
            partial_images: false,
            moved: Moved::Refused,
            defaults: None,
            base: None,
            batch_rows: BATCH_ROWS,
            batch_bytes: BATCH_BYTES,
        }
    }
}

/// See `Options::moved`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    Refused,
    /// They are rows that lack columns, as others are.
    Taken,
    /// Only they are built.
    Only,
}

/// `_change_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Change {
    Insert,
    UpdatePreimage,
    UpdatePostimage,
    Delete,
}

impl Change {
    /// The name, padded to 16 bytes, and its length.
    fn name(self) -> (&'static [u8; 16], usize) {
        match self {
            Self::Insert => (b"insert          ", 6),
            Self::UpdatePreimage => (b"update_preimage ", 15),
            Self::UpdatePostimage => (b"update_postimage", 16),
            Self::Delete => (b"delete          ", 6),
        }
    }

    pub(crate) fn names(changes: &[Self]) -> StringArray {
        let mut ends = pool::take(changes.len() + 1);
        let mut values = pool::take(16 * changes.len());
        ends.push(0);
        for change in changes {
            let (name, length) = change.name();
            values.extend_from_slice(name);
            values.truncate(values.len() - (16 - length));
            ends.push(values.len() as i32);
        }
        StringArray::new(OffsetBuffer::new(pool::share(ends)), pool::share(values).into_inner(), None)
    }
}

pub struct Output {
    columns: Columns,
    layout: Layout,
    schema: SchemaRef,
    changes: Vec<Change>,
    /// `_penstock_present` of each row.
    presents: Option<StringBuilder>,
    /// The text in `_penstock_present` of the current row.
    row_present: Option<String>,
    base: Option<Base>,
    sequences: Vec<i64>,
    /// See `RowsEvent::record`.
    record: Option<u64>,
    /// See `Options::identity_images`.
    identity_images: bool,
    /// Whether the images before the changes of this record are taken, although they have only the identity.
    identity_only: bool,
    commits: Vec<i64>,
    image_bytes: usize,
    batch_rows: usize,
    batch_bytes: usize,
}

/// `_penstock_base` of each row, and of the current row.
struct Base {
    literals: Literals,
    texts: StringBuilder,
    row: Option<String>,
}

/// A builder for each wanted column, in the order of the output.
struct Columns {
    builders: Vec<ColumnBuilder>,
    /// The place in `builders`, by the column's position in the table.
    places: Vec<Option<usize>>,
    /// Steps over whole images of the last table map.
    walk: Option<Walk>,
    absent: Absent,
    /// Whether each column is a generated one, by its position in the table.
    generated: Vec<bool>,
    defaults: Vec<Option<ArrayRef>>,
    /// See `Dialect`.
    omits_generated: bool,
    /// The caller computes the generated columns from `_penstock_base`.
    computed: bool,
}

impl Columns {
    fn place(&self, index: usize) -> Option<usize> {
        self.places.get(index).copied().flatten()
    }

    fn is_derived(&self, index: usize) -> bool {
        self.omits_generated && self.generated.get(index) == Some(&true)
    }
}

/// What happens to a column that the image lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    Refused,
    Null,
    /// It kept its value: see `RowsEvent::absent_is_unchanged`.
    Ambiguous,
    /// It gets the column's default, in an insert.
    Default,
}

impl RowSink for Columns {
    type Column = ColumnBuilder;

    #[inline]
    fn column(&mut self, index: usize) -> Option<&mut ColumnBuilder> {
        let place = self.place(index)?;
        self.builders.get_mut(place)
    }

    fn absent(&mut self, index: usize) -> Taken {
        let derived = self.is_derived(index);
        let Some(place) = self.place(index) else { return Ok(()) };
        let builder = &mut self.builders[place];
        match (self.absent, self.defaults.get(index)) {
            (Absent::Null, _) => builder.append_null(),
            _ if derived && self.computed => builder.append_null(),
            _ if derived => {
                return Err(ValueError::lacking(
                    Lacks::Generated,
                    "the row image leaves this generated column out, as MariaDB 11 does in updates",
                ))
            }
            (Absent::Default, Some(Some(default))) => builder.append_from(default)?,
            (Absent::Default, _) => return Err(ValueError::new(
                "the row image of an insert leaves it out, and its default is not known; the source needs \
                     binlog_row_image = FULL",
            )),
            (Absent::Ambiguous, _) => return Err(ValueError::new(
                "the row image lacks it, and MariaDB's does not tell an UPDATE that keeps it from a REPLACE \
                     that sets it to its default; the source needs binlog_row_image = FULL",
            )),
            (Absent::Refused, _) => return Err(missing_column()),
        }
        Ok(())
    }
}

impl Output {
    pub fn new(table: &TableSchema, options: &Options) -> Result<Self> {
        let refuse = |reason: String| DecodeError::of_table(table.name(), reason, 0);
        let order = match &options.columns {
            None => (0..table.columns.len()).collect(),
            Some(names) => names
                .iter()
                .map(|name| {
                    table.position(name).ok_or_else(|| refuse(format!("there is no column `{name}`")))
                })
                .collect::<Result<Vec<_>>>()?,
        };
        let schema = arrow_schema(table, Some(&order), options.layout, options.types, options.partial_images)
            .map_err(refuse)?;
        let (schema, base) = match &options.base {
            None => (schema, None),
            Some(names) => {
                let mut fields = schema.fields().to_vec();
                fields.push(Arc::new(Field::new(BASE, DataType::Utf8, true)));
                let literals = Literals::new(table, names)?;
                let base = Base { literals, texts: StringBuilder::new(), row: None };
                (Schema::new(fields), Some(base))
            }
        };
        let mut builders = Vec::with_capacity(order.len());
        let mut places: Vec<Option<usize>> = vec![None; table.columns.len()];
        for (place, position) in order.iter().enumerate() {
            let mut builder = ColumnBuilder::of(table, *position, options.types).map_err(refuse)?;
            builder.make_room(options.batch_rows.min(BATCH_ROWS));
            builders.push(builder);
            if places[*position].replace(place).is_some() {
                return Err(refuse(format!("column `{}` is wanted twice", table.columns[*position].name)));
            }
        }
        let default = |column: &ColumnSchema| {
            options.defaults.as_ref().and_then(|batch| batch.column_by_name(&column.name)).cloned()
        };
        let generated = table.columns.iter().map(|column| column.generated.is_some()).collect();
        let defaults = table.columns.iter().map(default).collect();
        Ok(Self {
            columns: Columns {
                builders,
                places,
                walk: None,
                absent: Absent::Refused,
                generated,
                defaults,
                omits_generated: false,
                computed: base.is_some(),
            },
            base,
            presents: options.partial_images.then(StringBuilder::new),
            row_present: None,
            layout: options.layout,
            schema: Arc::new(schema),
            changes: Vec::new(),
            sequences: Vec::new(),
            record: None,
            identity_images: options.identity_images,
            identity_only: false,
            commits: Vec::new(),
            image_bytes: 0,
            batch_rows: options.batch_rows.max(1),
            batch_bytes: options.batch_bytes,
        })
    }

    pub fn set_dialect(&mut self, dialect: Dialect) {
        self.columns.omits_generated = dialect.omits_generated;
        for builder in &mut self.columns.builders {
            builder.set_json_style(dialect.json);
        }
    }

    /// The table map of the images that come next. Images of another map are read too, but more slowly.
    #[inline]
    pub fn set_map(&mut self, map: &Arc<TableMap>) {
        let Columns { builders, places, walk, .. } = &mut self.columns;
        if !walk.as_ref().is_some_and(|walk| walk.is_of(map)) {
            let builder = |column: usize| {
                let place = places.get(column).copied().flatten()?;
                Some((place, &builders[place]))
            };
            *walk = Some(Walk::new(map, builder));
        }
    }

    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Called before the rows of a record.
    #[inline]
    pub fn set_rows(&mut self, rows: &RowsEvent<'_>) {
        self.record = rows.record;
        self.identity_only = rows.identity_only && self.identity_images;
    }

    /// Appends the row image at the cursor and moves the cursor behind it. The row's sequence is the image's
    /// offset.
    #[inline]
    pub fn append(
        &mut self,
        image: &mut Cursor<'_>,
        map: &TableMap,
        present: Present<'_>,
        change: Change,
        commit_us: i64,
    ) -> Result<()> {
        let start = image.offset();
        if present.is_full() {
            let Columns { builders, walk, .. } = &mut self.columns;
            if let Some(walk) = walk.as_ref().filter(|walk| walk.is_of(map)) {
                walk.run(image, present, builders)?;
                self.close_row(start, image.offset(), change, commit_us, true);
                return Ok(());
            }
        } else {
            self.open_partial(change, |index| present.has(index));
            let Columns { builders, walk, absent, .. } = &mut self.columns;
            let walk = walk.as_ref().filter(|walk| walk.is_of(map));
            if let (Absent::Null, None, Some(walk)) = (&absent, &self.base, walk) {
                walk.run_partial(image, present, builders)?;
                self.close_row(start, image.offset(), change, commit_us, false);
                return Ok(());
            }
            if let Some(base) = self.wanted_base(change, |index| present.has(index)) {
                let mut again = *image;
                walk_image(&mut again, map, present, &mut base.literals)?;
                base.row = Some(base.literals.take());
            }
        }
        walk_image(image, map, present, &mut self.columns)?;
        self.close_row(start, image.offset(), change, commit_us, present.is_full());
        Ok(())
    }

    /// Appends the row after an update. `before` is at the image before the update, `image` at the one after
    /// it.
    #[inline]
    pub fn append_after<'a>(
        &mut self,
        before: Cursor<'a>,
        image: &mut Cursor<'a>,
        map: &TableMap,
        rows: &RowsEvent<'a>,
        commit_us: i64,
    ) -> Result<()> {
        if rows.after_is_whole() {
            return self.append(image, map, rows.present_after, Change::UpdatePostimage, commit_us);
        }
        let start = image.offset();
        self.open_partial(Change::UpdatePostimage, |index| rows.after_has(index));
        if self.presents.is_some() && !rows.absent_is_unchanged {
            self.columns.absent = Absent::Ambiguous;
        }
        if let Some(base) = self.wanted_base(Change::UpdatePostimage, |index| rows.after_has(index)) {
            let mut again = *image;
            rows.walk_after(before, &mut again, map, &mut base.literals)?;
            base.row = Some(base.literals.take());
        }
        rows.walk_after(before, image, map, &mut self.columns)?;
        self.close_row(start, image.offset(), Change::UpdatePostimage, commit_us, false);
        Ok(())
    }

    /// Where to write `_penstock_base` of a row, if the row lacks columns that are computed from it.
    fn wanted_base(&mut self, change: Change, has: impl Fn(usize) -> bool) -> Option<&mut Base> {
        let deleted = change == Change::Delete && self.layout == Layout::Latest;
        let columns = &self.columns;
        let lacks = |index: usize| columns.is_derived(index) && columns.place(index).is_some() && !has(index);
        if deleted || !(0..columns.places.len()).any(lacks) {
            return None;
        }
        self.base.as_mut()
    }

    /// Called before an image that may lack columns.
    fn open_partial(&mut self, change: Change, has: impl Fn(usize) -> bool) {
        let deleted = change == Change::Delete && self.layout == Layout::Latest;
        let before = matches!(change, Change::Delete | Change::UpdatePreimage);
        self.columns.absent = match (&self.presents, change) {
            _ if deleted || self.identity_only && before => Absent::Null,
            (None, _) => Absent::Refused,
            (Some(_), Change::Insert) => Absent::Default,
            (Some(_), _) => Absent::Null,
        };
        if self.presents.is_none() {
            return;
        }
        let columns = self.columns.places.len();
        let known = |index| has(index) || self.columns.computed && self.columns.is_derived(index);
        let text: String = (0..columns).map(|index| if known(index) { '1' } else { '0' }).collect();
        let whole = deleted || change == Change::Insert || !text.contains('0');
        self.row_present = (!whole).then_some(text);
    }

    #[inline]
    fn close_row(&mut self, start: u64, end: u64, change: Change, commit_us: i64, full: bool) {
        let sequence = match self.record {
            None => start,
            Some(offset) => offset + u64::from(change == Change::UpdatePostimage),
        };
        self.sequences.push(sequence as i64);
        self.commits.push(commit_us);
        self.changes.push(change);
        self.image_bytes += (end - start) as usize;
        if let Some(presents) = &mut self.presents {
            presents.append_option(if full { None } else { self.row_present.as_deref() });
        }
        if let Some(base) = &mut self.base {
            base.texts.append_option(base.row.take());
        }
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.sequences.len() >= self.batch_rows || self.image_bytes >= self.batch_bytes
    }

    /// Returns the rows as a batch; None: there are no rows.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>> {
        if self.sequences.is_empty() {
            return Ok(None);
        }
        let failed = |reason: String| DecodeError::new(reason, self.sequences[0] as u64);
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.builders.len() + 5);
        for builder in &mut self.columns.builders {
            arrays.push(builder.finish().map_err(|error| failed(error.to_string()))?);
        }
        match self.layout {
            Layout::Rows => {}
            Layout::Latest => {
                let deleted = |row: usize| self.changes[row] == Change::Delete;
                let deleted = BooleanBuffer::collect_bool(self.changes.len(), deleted);
                arrays.push(Arc::new(BooleanArray::new(deleted, None)));
            }
            Layout::Changelog => {
                arrays.push(Arc::new(Change::names(&self.changes)));
            }
        }
        if self.layout != Layout::Rows {
            let room = self.sequences.len();
            let sequences = std::mem::replace(&mut self.sequences, pool::take(room));
            arrays.push(Arc::new(Int64Array::new(pool::share(sequences), None)));
            if self.layout == Layout::Changelog {
                let commits = std::mem::replace(&mut self.commits, pool::take(room));
                arrays.push(Arc::new(
                    TimestampMicrosecondArray::new(pool::share(commits), None).with_timezone("UTC"),
                ));
            }
            if let Some(presents) = &mut self.presents {
                arrays.push(Arc::new(presents.finish()));
            }
            if let Some(base) = &mut self.base {
                arrays.push(Arc::new(base.texts.finish()));
            }
        }
        self.sequences.clear();
        self.commits.clear();
        self.changes.clear();
        self.image_bytes = 0;
        let batch = RecordBatch::try_new(self.schema.clone(), arrays);
        Ok(Some(batch.map_err(|error| DecodeError::new(error.to_string(), 0))?))
    }
}
