//! Where the columns of a row are in its images.
//!
//! Messages need columns in other orders than images have them (keys), and need to know which columns an
//! update changed. So an image is cut into columns first, which costs little beside writing their values.

use crate::cursor::Cursor;
use crate::decimal::{write_image, DecimalImage};
use crate::error::Result;
use crate::list::Written as List;
use crate::rows::{
    missing_column, read_null_bits, read_value, skip_value, Present, RowsEvent, RowsKind, Taken, ValueSink,
};
use crate::table_map::{bit_from_low, MapColumn, TableMap};
use crate::temporal::{Date, DateTime, Instant, Time};
use crate::value_forms::append_bytes;
use crate::wire::WireType;

/// Where a column's value is: bytes of the event, with their length before them as in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The image does not have the column.
    Absent,
    /// The same, and a placeholder is sent in its place (`Row::fill_unavailable`).
    Unavailable,
    /// The same in an image that has only the identity, in a column that cannot be null: zero or an empty
    /// value is sent.
    Neutral,
    Null,
    Value {
        start: u32,
        end: u32,
    },
    /// Changes of a JSON document, and the document, if the image before has it.
    Changed {
        changes: (u32, u32),
        document: Option<(u32, u32)>,
    },
}

/// The columns of one row before and after a change. Empty: there is no such image.
#[derive(Debug, Default)]
pub struct Row {
    pub before: Vec<Place>,
    pub after: Vec<Place>,
    /// What is sent for values that are not available.
    placeholder: Vec<u8>,
}

/// One image: the event's bytes and the places of the columns.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    pub bytes: &'a [u8],
    pub columns: &'a [Place],
    pub placeholder: &'a [u8],
}

impl<'a> Image<'a> {
    #[inline]
    pub fn place(&self, index: usize) -> Place {
        self.columns.get(index).copied().unwrap_or(Place::Absent)
    }

    #[inline]
    pub fn slice(&self, (start, end): (u32, u32)) -> &'a [u8] {
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Sends a column's value to the sink. A column that the image lacks is an error.
    #[inline(always)]
    pub fn send<V: ValueSink>(&self, map: &TableMap, index: usize, to: &mut V) -> Result<()> {
        match self.place(index) {
            Place::Value { start, end } => {
                let mut cursor = Cursor::new(self.slice((start, end)), 0);
                match read_value(&mut cursor, map.columns[index].wire, to) {
                    Ok(()) => Ok(()),
                    Err(fault) => Err(fault.locate(map, index, &cursor)),
                }
            }
            place => self.send_rare(place, map, index, to),
        }
    }

    #[inline(never)]
    fn send_rare<V: ValueSink>(&self, place: Place, map: &TableMap, index: usize, to: &mut V) -> Result<()> {
        let sent = match place {
            Place::Null => to.null(),
            Place::Neutral => send_neutral(&map.columns[index], to),
            Place::Unavailable => self.send_placeholder(map.columns[index].wire, to),
            Place::Changed { changes, document } => {
                // The document has its length before it, as in its image.
                let inside = |(start, end): (u32, u32)| self.slice((start.saturating_add(4).min(end), end));
                to.json_changed(document.map(inside), self.slice(changes))
            }
            _ => Err(missing_column()),
        };
        sent.map_err(|error| error.of(map, index, &Cursor::new(&[], 0)))
    }

    fn send_placeholder<V: ValueSink>(&self, wire: WireType, to: &mut V) -> Taken {
        match wire.usual() {
            WireType::JsonText { .. } => to.json_text(self.placeholder),
            WireType::List => {
                let mut list = List::default();
                append_bytes(self.placeholder, list.element()).ok_or_else(missing_column)?;
                let mut value = Vec::new();
                list.finish(&mut value).ok_or_else(missing_column)?;
                to.list(value.get(4..).unwrap_or_default())
            }
            _ => to.bytes(self.placeholder),
        }
    }

    /// Whether both images have the same bytes for a column. Equal values may have different bytes (JSON).
    #[inline]
    pub fn same(&self, other: &Image<'_>, index: usize) -> bool {
        match (self.place(index), other.place(index)) {
            (Place::Value { start: a, end: b }, Place::Value { start: c, end: d }) => {
                self.slice((a, b)) == other.slice((c, d))
            }
            (Place::Null, Place::Null) => true,
            _ => false,
        }
    }
}

fn send_neutral<V: ValueSink>(column: &MapColumn, to: &mut V) -> Taken {
    let day = Date { year: 1970, month: 1, day: 1 };
    match column.wire.usual() {
        WireType::Int { unsigned: false, .. } => to.int(0),
        WireType::Int { .. } => to.uint(0),
        WireType::Boolean => to.boolean(false),
        WireType::Float => to.float(0.0),
        WireType::Double => to.double(0.0),
        WireType::Decimal { precision, scale } => {
            let mut zero = Vec::new();
            write_image(false, 0, precision, scale, &mut zero).ok_or_else(missing_column)?;
            to.decimal(DecimalImage::new(&zero, precision, scale).map_err(|_| missing_column())?)
        }
        WireType::Date => to.date(day),
        WireType::DateTime { .. } => to.datetime(DateTime { date: day, ..DateTime::default() }),
        WireType::Instant => to.timestamp(Instant::Micros(0)),
        WireType::Time { .. } => to.time(Time::default()),
        WireType::JsonText { .. } => to.json_text(b"{}"),
        WireType::List => to.list(&[0; 4]),
        WireType::Blob { .. } => to.bytes(column.neutral),
        _ => Err(missing_column()),
    }
}

impl Row {
    /// Leaves columns out, as if the log did not have them.
    pub fn omit(&mut self, columns: &[usize]) {
        for image in [&mut self.before, &mut self.after] {
            for index in columns {
                if let Some(place) = image.get_mut(*index) {
                    *place = Place::Absent;
                }
            }
        }
    }

    /// Of images before changes that have nothing but the columns which identify the row: it is left out if
    /// these have not changed. Else its other columns are null, as in a deletion, or if they cannot be null
    /// (`required`), zero or empty.
    pub fn fill_identity(&mut self, bytes: &[u8], kind: RowsKind, required: impl Fn(usize) -> bool) {
        let before = Image { bytes, columns: &self.before, placeholder: &[] };
        let after = Image { bytes, columns: &self.after, placeholder: &[] };
        let is_same = |index: usize| before.place(index) == Place::Absent || before.same(&after, index);
        if kind == RowsKind::Update && (0..self.before.len()).all(is_same) {
            return self.before.clear();
        }
        for (index, place) in self.before.iter_mut().enumerate() {
            if *place == Place::Absent {
                *place = if required(index) { Place::Neutral } else { Place::Null };
            }
        }
    }

    /// Gives the row after an update a placeholder for each value that the log does not have.
    pub fn fill_unavailable(&mut self, placeholder: &[u8]) {
        self.placeholder.clear();
        self.placeholder.extend_from_slice(placeholder);
        self.after
            .iter_mut()
            .filter(|place| **place == Place::Absent)
            .for_each(|place| *place = Place::Unavailable);
    }

    pub fn image<'a>(&'a self, columns: &'a [Place], bytes: &'a [u8]) -> Image<'a> {
        Image { bytes, columns, placeholder: &self.placeholder }
    }

    /// Cuts the images of the next row. `rows.images` moves behind it. The cursor must be over the bytes that
    /// places count from, from its first byte on.
    pub fn read(&mut self, rows: &mut RowsEvent<'_>, map: &TableMap) -> Result<()> {
        use RowsKind::{Delete, Insert, Update};
        self.before.clear();
        self.after.clear();
        match rows.kind {
            Insert => cut(&mut rows.images, map, rows.present, &mut self.after),
            Delete => cut(&mut rows.images, map, rows.present, &mut self.before),
            Update => {
                cut(&mut rows.images, map, rows.present, &mut self.before)?;
                if rows.after_is_whole() {
                    return cut(&mut rows.images, map, rows.present_after, &mut self.after);
                }
                self.read_partial(rows, map)
            }
        }
    }

    /// An after image that lacks columns, or has changes of JSON documents instead of documents.
    fn read_partial(&mut self, rows: &mut RowsEvent<'_>, map: &TableMap) -> Result<()> {
        let (partial, present, unchanged) = (rows.partial_json, rows.present_after, rows.absent_is_unchanged);
        let is_json = |index: usize| matches!(map.columns[index].wire, WireType::Json { .. });
        let image = &mut rows.images;
        let mut bits: &[u8] = &[];
        if partial && image.lenenc("row value options")? & 1 != 0 {
            let count = (0..map.columns.len()).filter(|index| is_json(*index)).count();
            bits = image.take(count.div_ceil(8), "partial JSON bits")?;
        }
        let nulls = read_null_bits(image, map, present)?;
        let (mut bit, mut json) = (0, 0);
        for index in 0..map.columns.len() {
            let is_changed = is_json(index) && bit_from_low(bits, json);
            json += usize::from(is_json(index));
            let before = self.before[index];
            if !present.has(index) {
                self.after.push(if unchanged { before } else { Place::Absent });
                continue;
            }
            let null = bit_from_low(nulls, bit);
            bit += 1;
            if null || !is_changed {
                self.after.push(place(image, map.columns[index].wire, null)?);
                continue;
            }
            let start = image.position() as u32;
            image.take_prefixed(4, "changes of a JSON document")?;
            let document = match before {
                Place::Value { start, end } => Some((start, end)),
                _ => None,
            };
            self.after.push(Place::Changed { changes: (start + 4, image.position() as u32), document });
        }
        Ok(())
    }
}

/// `places` must be empty.
#[inline]
fn cut(image: &mut Cursor<'_>, map: &TableMap, present: Present<'_>, places: &mut Vec<Place>) -> Result<()> {
    let nulls = read_null_bits(image, map, present)?;
    places.resize(map.columns.len(), Place::Absent);
    let (full, mut bit) = (present.is_full(), 0);
    for (index, (column, to)) in map.columns.iter().zip(places).enumerate() {
        if full || present.has(index) {
            *to = place(image, column.wire, bit_from_low(nulls, bit))?;
            bit += 1;
        }
    }
    Ok(())
}

#[inline(always)]
fn place(image: &mut Cursor<'_>, wire: WireType, null: bool) -> Result<Place> {
    if null {
        return Ok(Place::Null);
    }
    let start = image.position() as u32;
    skip_value(image, wire)?;
    Ok(Place::Value { start, end: image.position() as u32 })
}
