//! Lists: the elements of all rows in a builder of their own, or one text for each row.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};

use super::append::Result;
use super::{element_field, ColumnBuilder, Lists, Storage, TypeOptions};
use crate::error::ValueError;
use crate::list::{write_text, List};
use crate::pool::{self, share};
use crate::schema::ColumnType;

impl Lists {
    pub fn new(element: &ColumnType, options: TypeOptions) -> Self {
        Self { ends: vec![0], elements: ColumnBuilder::new(element.clone(), options) }
    }

    /// Empty ones of the same type.
    pub fn with_room(&self, rows: usize) -> Self {
        let mut ends = pool::take(rows + 1);
        ends.push(0);
        let mut elements = ColumnBuilder::new(self.elements.kind.clone(), self.elements.options);
        elements.make_room(self.elements.len());
        Self { ends, elements }
    }

    /// Marks the end of the list whose elements were just added.
    pub fn end(&mut self) -> Result {
        let end = i32::try_from(self.elements.len());
        self.ends.push(end.map_err(|_| ValueError::new("lists of one batch have too many elements"))?);
        Ok(())
    }

    pub fn finish(mut self, nulls: Option<NullBuffer>) -> std::result::Result<ArrayRef, ValueError> {
        let field = element_field(self.elements.data_type());
        let array =
            ListArray::try_new(field, OffsetBuffer::new(share(self.ends)), self.elements.finish()?, nulls);
        Ok(Arc::new(array.map_err(|error| ValueError::new(error.to_string()))?))
    }

    /// Appends the first value of an array of the same type.
    pub fn append_from(&mut self, array: &ArrayRef) -> Result {
        let elements = array.as_list::<i32>().value(0);
        for index in 0..elements.len() {
            self.elements.append_from(&elements.slice(index, 1))?;
        }
        self.end()
    }
}

impl ColumnBuilder {
    /// Appends a list from its form in rows (`crate::list`), without the length before it.
    #[cold]
    pub fn append_list(&mut self, value: &[u8]) -> Result {
        match (&mut self.storage, &self.kind) {
            (Storage::List(lists), ColumnType::List(element)) => {
                List::elements(value)?.send(element, &mut lists.elements, |_, _| {})?;
                lists.end()
            }
            (Storage::Text(bytes), ColumnType::List(element)) => {
                write_text(element, value, &mut bytes.values)?;
                bytes.end_value()
            }
            _ => Err(self.unfit("a list")),
        }
    }
}
