//! The rows of update events. Each row has two images, and the second may lack columns.
//!
//! With `binlog_row_image` MINIMAL or NOBLOB, an after image lacks the columns that the statement did not
//! set. Their values are those of the image before, if it has them. In a PARTIAL_UPDATE_ROWS event, a JSON
//! column may have changes of the document before instead of a document. So both images are read together,
//! column by column.
//!
//! The after image of a PARTIAL_UPDATE_ROWS event begins with options (length-encoded). If their lowest bit
//! is set, one bit follows for each JSON column of the table. It is set if the image has changes of the
//! document.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::rows::RowsKind;
use crate::rows::{
    read_null_bits, skip_image, skip_value, take_column, walk_image, RowSink, RowsEvent, ValueSink,
};
use crate::table_map::{bit_from_low, TableMap};
use crate::wire::WireType;

impl<'a> RowsEvent<'a> {
    /// Whether an after image can be read without the image before it.
    #[inline]
    pub fn after_is_whole(&self) -> bool {
        self.kind != RowsKind::Update || self.present_after.is_full() && !self.partial_json
    }

    /// Whether the row after an update is known: from its image, or from the one before it.
    pub fn after_has(&self, index: usize) -> bool {
        self.present_after.has(index) || self.kind == RowsKind::Update && self.present.has(index)
    }

    /// Moves the cursor behind the after image.
    pub fn skip_after(&self, after: &mut Cursor<'a>, map: &TableMap) -> Result<()> {
        self.read_changed(after, map)?;
        skip_image(after, map, self.present_after)
    }

    /// Sends the row after an update to the sink. `before` is at the image before the update. `after` is at
    /// the image after it, and is moved behind it.
    pub fn walk_after<S: RowSink>(
        &self,
        before: Cursor<'a>,
        after: &mut Cursor<'a>,
        map: &TableMap,
        sink: &mut S,
    ) -> Result<()> {
        if self.after_is_whole() {
            return walk_image(after, map, self.present_after, sink);
        }
        let changed = self.read_changed(after, map)?;
        let documents = self.walk_before(before, map, &changed, Some(&mut *sink))?;
        self.walk_changed(after, map, &changed, &documents, sink, |index| self.present.has(index))
    }

    /// Sends only the columns that the image after an update has. Changed documents are sent in full.
    pub fn walk_after_image<S: RowSink>(
        &self,
        before: Cursor<'a>,
        after: &mut Cursor<'a>,
        map: &TableMap,
        sink: &mut S,
    ) -> Result<()> {
        let changed = self.read_changed(after, map)?;
        let documents = match changed.bits.is_empty() {
            true => Vec::new(),
            false => self.walk_before::<S>(before, map, &changed, None)?,
        };
        self.walk_changed(after, map, &changed, &documents, sink, |_| false)
    }

    /// `known`: columns that have been sent.
    fn walk_changed<S: RowSink>(
        &self,
        after: &mut Cursor<'a>,
        map: &TableMap,
        changed: &Changed<'a>,
        documents: &[Option<&'a [u8]>],
        sink: &mut S,
        known: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let nulls = read_null_bits(after, map, self.present_after)?;
        let (mut bit, mut json) = (0, 0);
        for (index, column) in map.columns.iter().enumerate() {
            let is_json = matches!(column.wire, WireType::Json { .. });
            let (number, is_changed) = (json, is_json && bit_from_low(changed.bits, json));
            json += usize::from(is_json);
            if !self.present_after.has(index) {
                if !known(index) {
                    sink.absent(index).map_err(|error| error.of(map, index, after))?;
                }
                continue;
            }
            let null = bit_from_low(nulls, bit);
            bit += 1;
            match (is_changed && !null, sink.column(index)) {
                (false, values) => take_column(after, map, index, null, values)?,
                (true, None) => skip_value(after, column.wire)?,
                (true, Some(values)) => {
                    let changes = after.take_prefixed(4, "changes of a JSON document")?;
                    let document = documents.get(number).copied().flatten();
                    let taken = values.json_changed(document, changes);
                    taken.map_err(|error| error.of(map, index, after))?;
                }
            }
        }
        Ok(())
    }

    /// Sends the columns that only the image before has. Returns, for each JSON column, the document to
    /// change.
    fn walk_before<S: RowSink>(
        &self,
        mut before: Cursor<'a>,
        map: &TableMap,
        changed: &Changed<'a>,
        mut sink: Option<&mut S>,
    ) -> Result<Vec<Option<&'a [u8]>>> {
        let nulls = read_null_bits(&mut before, map, self.present)?;
        let mut documents = vec![None; changed.columns];
        let (mut bit, mut json) = (0, 0);
        for (index, column) in map.columns.iter().enumerate() {
            let is_json = matches!(column.wire, WireType::Json { .. });
            let (number, is_changed) = (json, is_json && bit_from_low(changed.bits, json));
            json += usize::from(is_json);
            if !self.present.has(index) {
                continue;
            }
            let null = bit_from_low(nulls, bit);
            bit += 1;
            if self.present_after.has(index) {
                if is_changed && !null {
                    if let WireType::Json { prefix } = column.wire {
                        documents[number] = Some(before.take_prefixed(prefix.into(), "JSON document")?);
                    }
                } else if !null {
                    skip_value(&mut before, column.wire)?;
                }
            } else {
                let values = sink.as_mut().and_then(|sink| sink.column(index));
                take_column(&mut before, map, index, null, values)?;
            }
        }
        Ok(documents)
    }

    /// What comes before the columns of an after image.
    fn read_changed(&self, after: &mut Cursor<'a>, map: &TableMap) -> Result<Changed<'a>> {
        if !self.partial_json {
            return Ok(Changed { bits: &[], columns: 0 });
        }
        let columns =
            map.columns.iter().filter(|column| matches!(column.wire, WireType::Json { .. })).count();
        let options = after.lenenc("row value options")?;
        let bits = if options & 1 != 0 { after.take(columns.div_ceil(8), "partial JSON bits")? } else { &[] };
        Ok(Changed { bits, columns })
    }
}

/// Which JSON columns of an after image have changes instead of a document.
struct Changed<'a> {
    bits: &'a [u8],
    columns: usize,
}
