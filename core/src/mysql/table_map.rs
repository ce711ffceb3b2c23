//! TABLE_MAP events: which table the row events after it belong to, and how its columns are written.
//!
//! Since MySQL 8.0.1 (MariaDB 10.5) a map also carries optional metadata; how much of it is the server's
//! `binlog_row_metadata`: MINIMAL has signedness, character sets and geometry types, FULL has everything.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::mysql::event::{Event, EventKind, FormatDescription};
use crate::table_map::{bit_from_low, MapColumn, TableMap};
use crate::table_name;
use crate::wire::WireType;

/// The servers' limit.
const COLUMNS_MAX: usize = 4096;

/// The part of a table map that names the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableMapHead<'a> {
    pub table_id: u64,
    pub flags: u16,
    pub database: &'a [u8],
    pub table: &'a [u8],
}

impl<'a> TableMapHead<'a> {
    pub fn parse(event: &Event<'a>, format: &FormatDescription) -> Result<Self> {
        Self::read(&mut event.cursor(), format)
    }

    /// See `table_name`.
    pub fn name(&self) -> String {
        table_name::text(&String::from_utf8_lossy(self.database), &String::from_utf8_lossy(self.table))
    }

    fn read(cursor: &mut Cursor<'a>, format: &FormatDescription) -> Result<Self> {
        let table_id = cursor.uint_le(format.table_id_size(EventKind::TABLE_MAP), "table id")?;
        let flags = cursor.u16("table map flags")?;
        let database = cursor.take_u8_prefixed("database name")?;
        cursor.skip(1, "end of the database name")?;
        let table = cursor.take_u8_prefixed("table name")?;
        cursor.skip(1, "end of the table name")?;
        Ok(Self { table_id, flags, database, table })
    }
}

impl TableMap {
    pub fn parse(event: &Event<'_>, format: &FormatDescription) -> Result<Self> {
        let mut cursor = event.cursor();
        let head = TableMapHead::read(&mut cursor, format)?;
        let count = cursor.lenenc_count(1, "column count")?;
        if count > COLUMNS_MAX {
            return Err(cursor.fail(format!("a table of {count} columns; {COLUMNS_MAX} are possible")));
        }
        let types = cursor.take(count, "column types")?;
        let metadata_offset = cursor.offset();
        let metadata = cursor.take_lenenc("column metadata")?;
        let mut metadata = Cursor::new(metadata, metadata_offset);
        let nullable = cursor.take(count.div_ceil(8), "nullable bits")?;
        let mut columns = Vec::with_capacity(count);
        for (index, type_code) in types.iter().enumerate() {
            let mut wire = WireType::parse(*type_code, &mut metadata)?;
            if let Some(fsp) = wire.old_fraction().filter(|_| format.is_mariadb()) {
                *fsp = None;
            }
            columns.push(MapColumn {
                wire,
                nullable: bit_from_low(nullable, index),
                unsigned: None,
                name: None,
                collation: None,
                labels: None,
                geometry: None,
                visible: None,
                element: None,
                neutral: &[],
            });
        }
        let mut map = Self {
            table_id: head.table_id,
            database: String::from_utf8_lossy(head.database).into_owned(),
            table: String::from_utf8_lossy(head.table).into_owned(),
            columns,
            primary_key: None,
            required: required(nullable, count),
        };
        map.read_optional(cursor, format)?;
        Ok(map)
    }

    fn read_optional(&mut self, mut cursor: Cursor<'_>, format: &FormatDescription) -> Result<()> {
        let has_characters = if format.is_mariadb() { is_character_or_geometry } else { is_character };
        while !cursor.is_empty() {
            let kind = cursor.u8("metadata field type")?;
            let length = cursor.lenenc_count(1, "metadata field length")?;
            let offset = cursor.offset();
            let mut field = Cursor::new(cursor.take(length, "metadata field")?, offset);
            match kind {
                1 => self.read_signedness(&mut field, format)?,
                2 => self.read_default_charset(&mut field, has_characters)?,
                3 => self.read_charsets(&mut field, has_characters)?,
                4 => self.read_names(&mut field)?,
                5 => self.read_labels(&mut field, |wire| matches!(wire, WireType::Set { .. }))?,
                6 => self.read_labels(&mut field, |wire| matches!(wire, WireType::Enum { .. }))?,
                7 => {
                    for column in
                        self.columns.iter_mut().filter(|c| matches!(c.wire, WireType::Geometry { .. }))
                    {
                        column.geometry = Some(field.lenenc("geometry type")? as u8);
                    }
                }
                8 => self.primary_key = Some(self.read_key(&mut field, false)?),
                9 => self.primary_key = Some(self.read_key(&mut field, true)?),
                10 => self.read_default_charset(&mut field, is_label)?,
                11 => self.read_charsets(&mut field, is_label)?,
                12 => {
                    let bits = field.rest();
                    for (index, column) in self.columns.iter_mut().enumerate() {
                        column.visible = Some(bit_from_high(bits, index));
                    }
                }
                // 13 is the dimension of vectors. Unknown ones are skipped.
                _ => {}
            }
        }
        Ok(())
    }

    /// One bit for each numeric column, 1: unsigned. Whether YEAR counts as numeric depends on the server:
    /// not on 8.0.15, yes (and always 1) on 9.7.
    fn read_signedness(&mut self, field: &mut Cursor<'_>, format: &FormatDescription) -> Result<()> {
        let bits = field.rest();
        let numeric = |year: bool| {
            let positions = self.columns.iter().enumerate().filter(move |(_, column)| match column.wire {
                WireType::Int { .. } | WireType::Float | WireType::Double | WireType::Decimal { .. } => true,
                WireType::Year => year,
                _ => false,
            });
            positions.map(|(index, _)| index).collect::<Vec<_>>()
        };
        let fits = |positions: &[usize]| {
            bits.len() == positions.len().div_ceil(8)
                && (positions.len()..bits.len() * 8).all(|index| !bit_from_high(bits, index))
                && positions.iter().enumerate().all(|(index, position)| {
                    self.columns[*position].wire != WireType::Year || bit_from_high(bits, index)
                })
        };
        let (with, without) = (numeric(true), numeric(false));
        let positions = match (fits(&with), fits(&without)) {
            (true, true) if year_is_numeric(&format.server_version) => with,
            (true, false) => with,
            (_, true) => without,
            (false, false) => return Err(field.fail("signedness bits that fit no column count")),
        };
        for (index, position) in positions.into_iter().enumerate() {
            let unsigned = bit_from_high(bits, index);
            let column = &mut self.columns[position];
            column.unsigned = Some(unsigned);
            if let WireType::Int { width, .. } = column.wire {
                column.wire = WireType::Int { width, unsigned };
            }
        }
        Ok(())
    }

    /// A default collation, then pairs: the index of a column among the character columns, and its collation.
    fn read_default_charset(
        &mut self,
        field: &mut Cursor<'_>,
        concerned: fn(WireType) -> bool,
    ) -> Result<()> {
        let default = field.lenenc("default collation")? as u16;
        let mut columns: Vec<_> = self.columns.iter_mut().filter(|column| concerned(column.wire)).collect();
        columns.iter_mut().for_each(|column| column.collation = Some(default));
        while !field.is_empty() {
            let index = field.lenenc("column index")? as usize;
            let collation = field.lenenc("collation")? as u16;
            match columns.get_mut(index) {
                Some(column) => column.collation = Some(collation),
                None => {
                    return Err(
                        field.fail(format!("collation of character column {index}, which is not there"))
                    )
                }
            }
        }
        Ok(())
    }

    fn read_charsets(&mut self, field: &mut Cursor<'_>, concerned: fn(WireType) -> bool) -> Result<()> {
        for column in self.columns.iter_mut().filter(|column| concerned(column.wire)) {
            column.collation = Some(field.lenenc("collation")? as u16);
        }
        Ok(())
    }

    fn read_names(&mut self, field: &mut Cursor<'_>) -> Result<()> {
        for column in &mut self.columns {
            let name = field.take_lenenc("column name")?;
            column.name = Some(String::from_utf8_lossy(name).into_owned());
        }
        Ok(())
    }

    fn read_labels(&mut self, field: &mut Cursor<'_>, concerned: fn(WireType) -> bool) -> Result<()> {
        for column in self.columns.iter_mut().filter(|column| concerned(column.wire)) {
            let count = field.lenenc_count(1, "label count")?;
            let mut labels = Vec::with_capacity(count);
            for _ in 0..count {
                labels.push(field.take_lenenc("label")?.into());
            }
            column.labels = Some(labels);
        }
        Ok(())
    }

    fn read_key(&self, field: &mut Cursor<'_>, with_prefix: bool) -> Result<Vec<usize>> {
        let mut key = Vec::new();
        while !field.is_empty() {
            let position = field.lenenc("key column")?;
            if position >= self.columns.len() as u64 {
                return Err(field.fail(format!("key column {position}, which is not there")));
            }
            key.push(position as usize);
            if with_prefix {
                field.lenenc("key prefix length")?;
            }
        }
        Ok(key)
    }
}

/// Columns in the list of character columns. VECTOR is among them, with the collation `binary`.
fn is_character(wire: WireType) -> bool {
    wire.is_string() || matches!(wire, WireType::Vector { .. })
}

/// In MariaDB's list there are spatial columns, too, with the collation `binary`.
fn is_character_or_geometry(wire: WireType) -> bool {
    is_character(wire) || matches!(wire, WireType::Geometry { .. })
}

fn is_label(wire: WireType) -> bool {
    matches!(wire, WireType::Enum { .. } | WireType::Set { .. })
}

/// Whether YEAR counts as numeric. Called only if the number of bits does not decide it.
fn year_is_numeric(server_version: &str) -> bool {
    !server_version.starts_with("8.0.")
}

/// The bits of the columns that are not nullable.
fn required(nullable: &[u8], columns: usize) -> Vec<u8> {
    let mut bits: Vec<u8> = nullable.iter().map(|bits| !bits).collect();
    if let (Some(last), used @ 1..) = (bits.last_mut(), columns % 8) {
        *last &= (1 << used) - 1;
    }
    bits
}

/// Bit `index` counted from the highest bit of the first byte; false beyond the end.
fn bit_from_high(bits: &[u8], index: usize) -> bool {
    bits.get(index / 8).is_some_and(|byte| byte << (index % 8) & 0x80 != 0)
}
