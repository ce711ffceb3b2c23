//! Which table rows belong to, and how its columns are written in their images.

use crate::schema::ColumnType;
use crate::table_name;
use crate::wire::{Extent, WireType};

/// How the images of a table's rows are written, as far as the log says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMap {
    pub table_id: u64,
    pub database: String,
    pub table: String,
    pub columns: Vec<MapColumn>,
    /// Positions of the primary key's columns; None: the log does not say it.
    pub primary_key: Option<Vec<usize>>,
    /// One bit per column, from the lowest. 1: the column is never NULL.
    pub required: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapColumn {
    pub wire: WireType,
    pub nullable: bool,
    /// None: the log does not say it, or the column is no number.
    pub unsigned: Option<bool>,
    pub name: Option<String>,
    /// Collation id, also of enum and set columns. 63: binary.
    pub collation: Option<u16>,
    /// Enum and set labels, in the column's character set.
    pub labels: Option<Vec<Box<[u8]>>>,
    pub geometry: Option<u8>,
    pub visible: Option<bool>,
    /// Of a list: what its elements are.
    pub element: Option<ColumnType>,
    /// Of a text or bytes: what stands for a value that cannot be NULL and that the log does not have.
    pub neutral: &'static [u8],
}

impl TableMap {
    /// See `table_name`.
    pub fn name(&self) -> String {
        table_name::text(&self.database, &self.table)
    }

    /// The column's name, or `@1`, `@2`, … where the map has none.
    pub fn column_name(&self, index: usize) -> String {
        match self.columns.get(index).and_then(|column| column.name.as_ref()) {
            Some(name) => name.clone(),
            None => format!("@{}", index + 1),
        }
    }

    /// A column whose values have a length that only the table's definition says.
    pub fn undefined_column(&self) -> Option<usize> {
        self.columns.iter().position(|column| column.wire.extent() == Extent::Unknown)
    }
}

/// Bit `index` counted from the lowest bit of the first byte; false beyond the end.
#[inline]
pub fn bit_from_low(bits: &[u8], index: usize) -> bool {
    bits.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}
