//! The form in which every log format gives rows, and the walk over their images.
//!
//! The values of an image are given to a `RowSink`, column by column. So Arrow builders and the JSON writer
//! of `inspect` use the same decoder. A sink says for each column whether it wants its values; others are
//! skipped.

use crate::compressed_column;
use crate::cursor::Cursor;
use crate::decimal::DecimalImage;
use crate::error::{DecodeError, Lacks, Result, ValueError};
use crate::old_temporal;
use crate::pgoutput::sent;
use crate::table_map::{bit_from_low, TableMap};
use crate::temporal::{Date, DateTime, Instant, Time};
pub use crate::value_sink::{Taken, ValueSink};
use crate::wire::{Extent, Sent, Usual, WireType, OPEN_TEXT};

/// Takes the values of one row image.
pub trait RowSink {
    type Column: ValueSink;

    /// Where to write the value of the column. None: the value is skipped.
    fn column(&mut self, index: usize) -> Option<&mut Self::Column>;

    /// The image does not have this column.
    fn absent(&mut self, index: usize) -> Taken;
}

/// The error for an image that lacks a needed column.
#[cold]
pub fn missing_column() -> ValueError {
    ValueError::lacking(
        Lacks::Columns,
        "the row image lacks it; the source needs binlog_row_image = FULL, or in PostgreSQL, \
         REPLICA IDENTITY FULL",
    )
}

/// Which of the table's columns an image has.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    bits: &'a [u8],
    /// Number of the table's columns.
    columns: usize,
    /// Number of columns that are present.
    count: usize,
}

impl<'a> Present<'a> {
    pub fn parse(cursor: &mut Cursor<'a>, columns: usize) -> Result<Self> {
        let bits = cursor.take(columns.div_ceil(8), "present columns")?;
        let last = u8::MAX >> (7 - columns.wrapping_sub(1) % 8); // the bits of the last byte that are columns
        let count = match bits.split_last() {
            Some((byte, others)) => {
                (byte & last).count_ones() + others.iter().map(|byte| byte.count_ones()).sum::<u32>()
            }
            None => 0,
        } as usize;
        Ok(Self { bits, columns, count })
    }

    pub fn has(&self, index: usize) -> bool {
        index < self.columns && bit_from_low(self.bits, index)
    }

    /// Whether all columns are there.
    pub fn is_full(&self) -> bool {
        self.count == self.columns
    }
}

/// What a run of rows means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsKind {
    Insert,
    Update,
    Delete,
}

/// A run of rows up to its images.
#[derive(Debug, Clone, Copy)]
pub struct RowsEvent<'a> {
    pub kind: RowsKind,
    pub table_id: u64,
    pub flags: u16,
    /// The columns of the first image of each row.
    pub present: Present<'a>,
    /// The columns of the second image of each row in an update. For other events it is equal to `present`.
    pub present_after: Present<'a>,
    pub columns: usize,
    /// Whether after images may have changes of JSON documents: see `update`.
    pub partial_json: bool,
    /// Whether a column that both images of an update lack kept its value. Not so on MariaDB: a REPLACE that
    /// it logs as an update leaves out the columns that it set to their defaults.
    pub absent_is_unchanged: bool,
    /// Whether the image before a change has nothing but the columns that identify the row.
    pub identity_only: bool,
    /// The offset of the log's record, if the images were rewritten from other bytes, so that places in them
    /// are no places in the log. Such a record has one row: its first image is at the offset, its second one
    /// a byte behind it.
    pub record: Option<u64>,
    /// A cursor at the first image.
    pub images: Cursor<'a>,
}

impl<'a> RowsEvent<'a> {
    /// Whether it is the last row event of its statement.
    pub const FLAG_STATEMENT_END: u16 = 1;
    /// Whether the session had `foreign_key_checks = 0`, so that no foreign key changed rows.
    pub const FLAG_NO_FOREIGN_KEY_CHECKS: u16 = 2;

    /// `map`: the table map that its table id names.
    pub fn check(&self, map: &TableMap) -> Result<()> {
        if self.columns != map.columns.len() {
            return Err(self.images.fail(format!(
                "row event with {} columns for {}, whose table map has {}",
                self.columns,
                map.name(),
                map.columns.len()
            )));
        }
        Ok(())
    }
}

/// Sends the row image at the cursor to the sink, and moves the cursor behind it. The event must have been
/// checked against the map. After images of updates: see `RowsEvent::walk_after`.
#[inline]
pub fn walk_image<S: RowSink>(
    image: &mut Cursor<'_>,
    map: &TableMap,
    present: Present<'_>,
    sink: &mut S,
) -> Result<()> {
    let nulls = read_null_bits(image, map, present)?;
    let mut bit = 0;
    for index in 0..map.columns.len() {
        if !present.is_full() && !present.has(index) {
            sink.absent(index).map_err(|error| error.of(map, index, image))?;
            continue;
        }
        let null = bit_from_low(nulls, bit);
        bit += 1;
        take_column(image, map, index, null, sink.column(index))?;
    }
    Ok(())
}

/// A bit for each column that is present. A NULL in a column that cannot have one is an error: these are not
/// the bytes of a row.
#[inline]
pub fn read_null_bits<'a>(image: &mut Cursor<'a>, map: &TableMap, present: Present<'_>) -> Result<&'a [u8]> {
    let nulls = image.take(present.count.div_ceil(8), "null bits of a row")?;
    if present.is_full() && nulls.iter().zip(&map.required).any(|(nulls, required)| nulls & required != 0) {
        return Err(image.fail("NULL in a column that cannot be NULL"));
    }
    Ok(nulls)
}

/// Sends the value at the cursor to the sink, or skips it.
#[inline(always)]
pub fn take_column<V: ValueSink>(
    image: &mut Cursor<'_>,
    map: &TableMap,
    index: usize,
    null: bool,
    values: Option<&mut V>,
) -> Result<()> {
    let wire = map.columns[index].wire;
    match (values, null) {
        (Some(values), false) => {
            if let Err(fault) = read_value(image, wire, values) {
                return Err(fault.locate(map, index, image));
            }
        }
        (Some(values), true) => values.null().map_err(|error| error.of(map, index, image))?,
        (None, false) => skip_value(image, wire)?,
        (None, true) => {}
    }
    Ok(())
}

/// Moves the cursor behind the row image.
#[inline]
pub fn skip_image(image: &mut Cursor<'_>, map: &TableMap, present: Present<'_>) -> Result<()> {
    let nulls = read_null_bits(image, map, present)?;
    let mut bit = 0;
    for (index, column) in map.columns.iter().enumerate() {
        if present.is_full() || present.has(index) {
            if !bit_from_low(nulls, bit) {
                skip_value(image, column.wire)?;
            }
            bit += 1;
        }
    }
    Ok(())
}

/// Inlined into the loops over columns, so that a value needs one jump. The usual lengths need no call.
#[inline(always)]
pub fn skip_value(image: &mut Cursor<'_>, wire: WireType) -> Result<()> {
    match wire.extent() {
        Extent::Fixed(size) => image.skip(size.into(), "value"),
        Extent::Prefixed(1) => image.take_u8_prefixed("value").map(drop),
        Extent::Prefixed(2) => {
            let length = image.u16("value")?;
            image.skip(length.into(), "value")
        }
        Extent::Prefixed(prefix) => image.take_prefixed(prefix.into(), "value").map(drop),
        Extent::Sent => sent::skip(image),
        Extent::Unknown => Err(old_temporal::undefined(image)),
    }
}

/// An error of a value: its bytes are wrong, or what they say is.
pub enum Fault {
    Input(DecodeError),
    Value(ValueError),
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Input(error)
    }
}

impl From<ValueError> for Fault {
    fn from(error: ValueError) -> Self {
        Self::Value(error)
    }
}

impl Fault {
    #[cold]
    pub(crate) fn locate(self, map: &TableMap, index: usize, place: &Cursor<'_>) -> DecodeError {
        match self {
            Self::Input(error) => error,
            Self::Value(error) => error.of(map, index, place),
        }
    }
}

impl ValueError {
    /// The error for a value at this place of a row image.
    #[cold]
    pub fn of(&self, map: &TableMap, index: usize, place: &Cursor<'_>) -> DecodeError {
        self.at(&map.name(), &map.column_name(index), place.offset())
    }
}

/// Inlined into the loop over columns, so that a value needs one jump. Rare and long forms have their own
/// functions.
#[inline(always)]
pub fn read_value<V: ValueSink>(
    image: &mut Cursor<'_>,
    wire: WireType,
    to: &mut V,
) -> std::result::Result<(), Fault> {
    match wire {
        WireType::Int { width, unsigned } => read_int(image, width, unsigned, to)?,
        WireType::Char { length } | WireType::Varchar { length } => {
            let prefix = if length < 256 { 1 } else { 2 };
            to.bytes(image.take_prefixed(prefix, "string")?)?
        }
        WireType::Decimal { precision, scale } => {
            let size = crate::decimal::image_size(precision, scale);
            to.decimal(DecimalImage::new(image.take(size, "decimal")?, precision, scale)?)?
        }
        WireType::DateTime { fsp } => to.datetime(read_datetime(image, fsp)?)?,
        WireType::Timestamp { fsp } => {
            let seconds = image.uint_be(4, "timestamp")?;
            let micros = read_fraction(image, fsp)?;
            to.timestamp(Instant::of_timestamp(seconds, micros)?)?
        }
        WireType::Blob { prefix } | WireType::Geometry { prefix } | WireType::Vector { prefix } => {
            to.bytes(image.take_prefixed(prefix.into(), "blob")?)?
        }
        WireType::Compressed { prefix } => {
            let packed = image.take_prefixed(prefix.into(), "compressed value")?;
            to.bytes(&compressed_column::unpack(packed)?)?
        }
        WireType::Json { prefix } => to.json(image.take_prefixed(prefix.into(), "JSON document")?)?,
        WireType::Float => to.float(image.f32("float")?)?,
        WireType::Double => to.double(image.f64("double")?)?,
        WireType::Enum { width } => to.label(image.uint_le(width.into(), "enum")?)?,
        WireType::Set { width } => to.label(image.uint_le(width.into(), "set")?)?,
        WireType::Bit { bits } => to.bit(image.uint_be(bits.div_ceil(8).into(), "bits")?)?,
        WireType::ShortYear => to.year(u16::from(image.u8("year")?) % 100)?,
        WireType::Year => {
            let year = u16::from(image.u8("year")?);
            to.year(if year == 0 { 0 } else { 1900 + year })?
        }
        WireType::Date => {
            let bits = image.uint_le(3, "date")?;
            to.date(Date { year: (bits >> 9) as u16, month: (bits >> 5 & 15) as u8, day: (bits & 31) as u8 })?
        }
        WireType::Time { fsp } => to.time(read_time(image, fsp)?)?,
        WireType::OldTime { fsp } => to.time(old_temporal::time(image, fsp)?)?,
        WireType::OldDateTime { fsp } => to.datetime(old_temporal::datetime(image, fsp)?)?,
        WireType::OldTimestamp { fsp } => {
            let (seconds, micros) = old_temporal::timestamp(image, fsp)?;
            to.timestamp(Instant::of_timestamp(seconds, micros)?)?
        }
        WireType::Boolean => to.boolean(image.u8("boolean")? != 0)?,
        WireType::Instant => to.timestamp(read_instant(image)?)?,
        WireType::JsonText { prefix } => to.json_text(image.take_prefixed(prefix.into(), "JSON")?)?,
        WireType::List => to.list(image.take_prefixed(4, "list")?)?,
        WireType::Open(of) => read_open(image, of, to)?,
        WireType::Sent(of) => read_sent(image, of, to)?,
        WireType::Null => to.null()?,
    }
    Ok(())
}

#[inline(always)]
fn read_instant(image: &mut Cursor<'_>) -> Result<Instant> {
    Ok(match image.u64("moment")? as i64 {
        i64::MIN => Instant::Zero,
        micros => Instant::Micros(micros),
    })
}

#[inline(never)]
fn read_sent<V: ValueSink>(image: &mut Cursor<'_>, of: Sent, to: &mut V) -> std::result::Result<(), Fault> {
    let (is_text, bytes) = sent::take(image)?;
    if is_text {
        return Ok(sent::text(of, bytes, to)?);
    }
    Ok(sent::binary(of, bytes, to)?)
}

#[inline(never)]
fn read_open<V: ValueSink>(image: &mut Cursor<'_>, of: Usual, to: &mut V) -> std::result::Result<(), Fault> {
    let offset = image.offset();
    let bytes = image.take_u8_prefixed("value")?;
    if bytes.len() >= OPEN_TEXT {
        return Ok(to.extreme(bytes.trim_ascii_end())?);
    }
    let mut image = Cursor::new(bytes, offset);
    match of {
        Usual::Date => {
            let bits = image.uint_le(3, "date")?;
            let (month, day) = ((bits >> 5 & 15) as u8, (bits & 31) as u8);
            to.date(Date { year: (bits >> 9) as u16, month, day })?
        }
        Usual::DateTime { fsp } => to.datetime(read_datetime(&mut image, fsp)?)?,
        Usual::Instant => to.timestamp(read_instant(&mut image)?)?,
        Usual::Decimal { precision, scale } => {
            let size = crate::decimal::image_size(precision, scale);
            to.decimal(DecimalImage::new(image.take(size, "decimal")?, precision, scale)?)?
        }
    }
    Ok(())
}

#[inline(always)]
fn read_int<V: ValueSink>(
    image: &mut Cursor<'_>,
    width: u8,
    unsigned: bool,
    to: &mut V,
) -> std::result::Result<(), Fault> {
    let value = match width {
        1 => u64::from(image.u8("integer")?),
        2 => image.u16("integer")?.into(),
        4 => image.u32("integer")?.into(),
        8 => image.u64("integer")?,
        _ => image.uint_le(width.into(), "integer")?,
    };
    if unsigned {
        to.uint(value)?;
    } else {
        let unused = 64 - 8 * u32::from(width);
        to.int((value << unused) as i64 >> unused)?;
    }
    Ok(())
}

/// The fraction of a second in (fsp + 1) / 2 bytes: hundredths, ten-thousandths or millionths.
#[inline(always)]
pub(crate) fn read_fraction(image: &mut Cursor<'_>, fsp: u8) -> Result<u32> {
    let fraction = match fsp {
        0 => return Ok(0),
        1 | 2 => image.uint_be(1, "fraction of a second")? * 10_000,
        3 | 4 => image.uint_be(2, "fraction of a second")? * 100,
        _ => image.uint_be(3, "fraction of a second")?,
    };
    Ok(fraction as u32)
}

/// 40 bits from the highest: sign (always 1), year * 13 + month (17), day (5), hour (5), minute (6), second
/// (6).
#[inline(always)]
pub(crate) fn read_datetime(image: &mut Cursor<'_>, fsp: u8) -> Result<DateTime> {
    let bits = image.uint_be(5, "datetime")?;
    let months = (bits >> 22 & 0x1ffff) as u32;
    Ok(DateTime {
        date: Date { year: (months / 13) as u16, month: (months % 13) as u8, day: (bits >> 17 & 31) as u8 },
        hour: (bits >> 12 & 31) as u8,
        minute: (bits >> 6 & 63) as u8,
        second: (bits & 63) as u8,
        micros: read_fraction(image, fsp)?,
    })
}

/// 24 bits and the fraction as one number, to which 2^23 seconds (with as many zero bits of fraction) were
/// added: unused (1), hours (10), minutes (6), seconds (6).
#[inline(never)]
fn read_time(image: &mut Cursor<'_>, fsp: u8) -> Result<Time> {
    let fraction_bytes = usize::from(fsp.div_ceil(2));
    let bits = image.uint_be(3 + fraction_bytes, "time")? as i64 - (1 << (23 + 8 * fraction_bytes));
    let magnitude = bits.unsigned_abs();
    let fraction = magnitude & ((1 << (8 * fraction_bytes)) - 1);
    let whole = magnitude >> (8 * fraction_bytes);
    Ok(Time {
        negative: bits < 0,
        hours: (whole >> 12 & 0x3ff) as u32,
        minutes: (whole >> 6 & 63) as u8,
        seconds: (whole & 63) as u8,
        micros: fraction as u32 * [1, 10_000, 100, 1][fraction_bytes],
    })
}
