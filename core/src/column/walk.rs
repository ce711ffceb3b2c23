//! Decodes row images into builders, with steps that are computed once per table map: the form of a column in
//! the log, and its builder, are the same for every row.

use std::sync::Arc;

use super::{ColumnBuilder, Storage};
use crate::charset::Charset;
use crate::cursor::Cursor;
use crate::decimal::{image_size, Groups};
use crate::error::Result;
use crate::old_temporal;
use crate::pgoutput::sent;
use crate::rows::{read_datetime, read_fraction, read_null_bits, read_value, Fault, Present};
use crate::schema::ColumnType;
use crate::table_map::{bit_from_low, TableMap};
use crate::temporal::Date;
use crate::wire::{Extent, Sent, WireType};

/// The steps over the whole images of one table map.
pub struct Walk {
    map: Arc<TableMap>,
    steps: Vec<Step>,
    /// The steps for images without nulls. Adjacent columns of fixed size that are not wanted are one step.
    steps_without_nulls: Vec<Step>,
    /// The bits of the last byte of null bits that belong to columns.
    last_nulls: u8,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    column: u32,
    /// The place of the column's builder.
    place: u32,
    action: Action,
}

/// What to do with a value that is not null.
#[derive(Debug, Clone, Copy)]
enum Action {
    Skip(u32),
    SkipPrefixed(u8),
    SkipSent,
    /// An error: the map was not fitted to a definition.
    Unknown,
    Int8,
    UInt8,
    Int16,
    UInt16,
    Int24,
    UInt24,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float,
    Double,
    Decimal {
        size: u8,
        groups: Groups,
    },
    Date,
    DateTime {
        fsp: u8,
    },
    Timestamp {
        fsp: u8,
    },
    Label {
        width: u8,
    },
    /// Appends the bytes unchanged.
    Bytes {
        prefix: u8,
    },
    Padded {
        prefix: u8,
        length: u32,
    },
    Json {
        prefix: u8,
    },
    Sent(Sent),
    /// Goes through `ValueSink`.
    Other(WireType),
}

/// The place of a column that is not wanted.
const NOWHERE: u32 = u32::MAX;

impl Walk {
    /// `builder` returns the place of a column's builder and the builder, for the column's position in the
    /// table. None: the column is not wanted.
    pub fn new<'b>(
        map: &Arc<TableMap>,
        builder: impl Fn(usize) -> Option<(usize, &'b ColumnBuilder)>,
    ) -> Self {
        let step = |column: usize| {
            let wire = map.columns[column].wire;
            let (place, action) = match builder(column) {
                Some((place, builder)) => (place as u32, action(wire, builder)),
                None => match wire.extent() {
                    Extent::Fixed(size) => (NOWHERE, Action::Skip(size.into())),
                    Extent::Prefixed(prefix) => (NOWHERE, Action::SkipPrefixed(prefix)),
                    Extent::Sent => (NOWHERE, Action::SkipSent),
                    Extent::Unknown => (NOWHERE, Action::Unknown),
                },
            };
            Step { column: column as u32, place, action }
        };
        let steps: Vec<Step> = (0..map.columns.len()).map(step).collect();
        let mut joined: Vec<Step> = Vec::with_capacity(steps.len());
        for step in &steps {
            match (joined.last_mut().map(|last| &mut last.action), step.action) {
                (Some(Action::Skip(before)), Action::Skip(size)) => *before += size,
                _ => joined.push(*step),
            }
        }
        let last_nulls = match map.columns.len() % 8 {
            0 => u8::MAX,
            used => (1 << used) - 1,
        };
        Self { map: map.clone(), steps, steps_without_nulls: joined, last_nulls }
    }

    #[inline]
    pub fn is_of(&self, map: &TableMap) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.map), map)
    }

    /// Appends the row image at the cursor to the builders. The image must have all columns. The cursor moves
    /// behind it.
    #[inline]
    pub fn run(
        &self,
        image: &mut Cursor<'_>,
        present: Present<'_>,
        builders: &mut [ColumnBuilder],
    ) -> Result<()> {
        let nulls = read_null_bits(image, &self.map, present)?;
        let without_nulls = match nulls.split_last() {
            Some((last, others)) => last & self.last_nulls == 0 && others.iter().all(|byte| *byte == 0),
            None => true,
        };
        match without_nulls {
            true => self.take::<false>(&self.steps_without_nulls, &[], image, builders),
            false => self.take::<true>(&self.steps, nulls, image, builders),
        }
    }

    #[inline(always)]
    fn take<const NULLS: bool>(
        &self,
        steps: &[Step],
        nulls: &[u8],
        image: &mut Cursor<'_>,
        builders: &mut [ColumnBuilder],
    ) -> Result<()> {
        for step in steps {
            let null = NULLS && bit_from_low(nulls, step.column as usize);
            self.step(step, null, image, builders.get_mut(step.place as usize))?;
        }
        Ok(())
    }

    /// Appends the row image at the cursor, which may lack columns: they become null.
    pub fn run_partial(
        &self,
        image: &mut Cursor<'_>,
        present: Present<'_>,
        builders: &mut [ColumnBuilder],
    ) -> Result<()> {
        let nulls = read_null_bits(image, &self.map, present)?;
        let mut bit = 0;
        for step in &self.steps {
            let builder = builders.get_mut(step.place as usize);
            if present.has(step.column as usize) {
                self.step(step, bit_from_low(nulls, bit), image, builder)?;
                bit += 1;
            } else if let Some(builder) = builder {
                builder.append_null();
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn step(
        &self,
        step: &Step,
        null: bool,
        image: &mut Cursor<'_>,
        builder: Option<&mut ColumnBuilder>,
    ) -> Result<()> {
        match (step.action, builder) {
            (_, builder) if null => {
                if let Some(builder) = builder {
                    builder.append_null();
                }
            }
            (Action::Skip(size), _) => image.skip(size as usize, "value")?,
            (Action::SkipPrefixed(prefix), _) => drop(take_prefixed(image, prefix)?),
            (Action::SkipSent, _) => sent::skip(image)?,
            (Action::Unknown, _) => return Err(old_temporal::undefined(image)),
            (action, Some(builder)) => {
                if let Err(fault) = take_value(image, action, builder) {
                    return Err(fault.locate(&self.map, step.column as usize, image));
                }
            }
            (_, None) => {}
        }
        Ok(())
    }
}

/// The action for values of this form and this builder.
fn action(wire: WireType, builder: &ColumnBuilder) -> Action {
    let utf8 = ColumnType::Text { charset: Charset::Utf8, trimmed: false };
    let prefix = match wire.extent() {
        Extent::Prefixed(prefix) => prefix,
        Extent::Fixed(_) | Extent::Sent | Extent::Unknown => 0,
    };
    match (wire, &builder.storage, &builder.kind) {
        (WireType::Int { width, unsigned }, Storage::Int32(_), _) => match (width, unsigned) {
            (1, false) => Action::Int8,
            (1, true) => Action::UInt8,
            (2, false) => Action::Int16,
            (2, true) => Action::UInt16,
            (3, false) => Action::Int24,
            (3, true) => Action::UInt24,
            (4, false) => Action::Int32,
            _ => Action::Other(wire),
        },
        (WireType::Int { width: 4, unsigned: true }, Storage::Int64(_), _) => Action::UInt32,
        (WireType::Int { width: 8, unsigned: false }, Storage::Int64(_), _) => Action::Int64,
        (WireType::Int { width: 8, unsigned: true }, Storage::Decimal(_, _, 0), _) => Action::UInt64,
        (WireType::Float, Storage::Float32(_), _) => Action::Float,
        (WireType::Double, Storage::Float64(_), _) => Action::Double,
        (WireType::Decimal { precision, scale }, Storage::Decimal(..), _) => {
            match Groups::short(precision, scale) {
                Some(groups) => Action::Decimal { size: image_size(precision, scale) as u8, groups },
                None => Action::Other(wire),
            }
        }
        (WireType::Date, Storage::Date(_), _) => Action::Date,
        (WireType::DateTime { fsp }, Storage::Timestamp(..), _) => Action::DateTime { fsp },
        (WireType::Timestamp { fsp }, Storage::Timestamp(..), _) => Action::Timestamp { fsp },
        (WireType::Enum { width } | WireType::Set { width }, Storage::Text(_), _) => Action::Label { width },
        (
            WireType::Char { .. } | WireType::Varchar { .. } | WireType::Blob { .. },
            Storage::Text(_),
            kind,
        ) if *kind == utf8 => Action::Bytes { prefix },
        (
            WireType::Char { .. } | WireType::Varchar { .. } | WireType::Blob { .. },
            Storage::Binary(_),
            ColumnType::Binary { padded },
        ) => match *padded {
            None => Action::Bytes { prefix },
            Some(length) => Action::Padded { prefix, length },
        },
        (WireType::Json { prefix }, Storage::Text(_), ColumnType::Json) => Action::Json { prefix },
        (WireType::Sent(of), ..) => Action::Sent(of),
        _ => Action::Other(wire),
    }
}

#[inline(always)]
fn take_value(
    image: &mut Cursor<'_>,
    action: Action,
    builder: &mut ColumnBuilder,
) -> std::result::Result<(), Fault> {
    match action {
        Action::Int8 => builder.push_i32(i32::from(image.u8("integer")? as i8))?,
        Action::UInt8 => builder.push_i32(i32::from(image.u8("integer")?))?,
        Action::Int16 => builder.push_i32(i32::from(image.u16("integer")? as i16))?,
        Action::UInt16 => builder.push_i32(i32::from(image.u16("integer")?))?,
        Action::Int24 => builder.push_i32(((image.uint_le(3, "integer")? as i32) << 8) >> 8)?,
        Action::UInt24 => builder.push_i32(image.uint_le(3, "integer")? as i32)?,
        Action::Int32 => builder.push_i32(image.u32("integer")? as i32)?,
        Action::UInt32 => builder.push_i64(image.u32("integer")?.into())?,
        Action::Int64 => builder.push_i64(image.i64("integer")?)?,
        Action::UInt64 => builder.push_i128(image.u64("integer")?.into())?,
        Action::Float => builder.append_f32(image.f32("float")?)?,
        Action::Double => builder.append_f64(image.f64("double")?)?,
        Action::Decimal { size, groups } => {
            builder.push_i128(groups.unscaled(image.take(size.into(), "decimal")?)?.into())?
        }
        Action::Date => {
            let bits = image.uint_le(3, "date")?;
            builder.append_date(Date {
                year: (bits >> 9) as u16,
                month: (bits >> 5 & 15) as u8,
                day: (bits & 31) as u8,
            })?
        }
        Action::DateTime { fsp } => builder.append_datetime(read_datetime(image, fsp)?)?,
        Action::Timestamp { fsp } => {
            let seconds = image.uint_be(4, "timestamp")?;
            builder.append_timestamp(seconds, read_fraction(image, fsp)?)?
        }
        Action::Label { width } => builder.append_label(image.uint_le(width.into(), "label")?)?,
        Action::Bytes { prefix } => builder.push_bytes(take_prefixed(image, prefix)?, 0)?,
        Action::Padded { prefix, length } => {
            builder.push_bytes(take_prefixed(image, prefix)?, length as usize)?
        }
        Action::Json { prefix } => builder.append_json_document(take_prefixed(image, prefix)?)?,
        Action::Sent(of) => take_sent(image, of, builder)?,
        Action::Other(wire) => read_value(image, wire, builder)?,
        Action::Skip(_) | Action::SkipPrefixed(_) | Action::SkipSent | Action::Unknown => {}
    }
    Ok(())
}

/// A function of its own, as inlined it makes the loop slower for other sources.
#[inline(never)]
fn take_sent(
    image: &mut Cursor<'_>,
    of: Sent,
    builder: &mut ColumnBuilder,
) -> std::result::Result<(), Fault> {
    match sent::take(image)? {
        (false, bytes) => sent::binary(of, bytes, builder)?,
        (true, text) => sent::text(of, text, builder)?,
    }
    Ok(())
}

/// Most lengths have one or two bytes.
#[inline(always)]
fn take_prefixed<'a>(image: &mut Cursor<'a>, prefix: u8) -> Result<&'a [u8]> {
    const WHAT: &str = "value";
    let length = match prefix {
        1 => usize::from(image.u8(WHAT)?),
        2 => usize::from(image.u16(WHAT)?),
        _ => return image.take_prefixed(prefix.into(), WHAT),
    };
    image.take(length, WHAT)
}
