//! Values of lists in rows, and their text.
//!
//! | bytes | |
//! |---|---|
//! | 4 | how many elements, little-endian, or `NO_LIST` |
//! | n / 8, rounded up | a bit for each element, from the lowest; 1: it is NULL |
//! | … | the elements that are not NULL, each in the form of its type (`wire::form`) |
//!
//! Sources may have arrays that are no lists: with several dimensions, or whose first element is not number
//! 1. Behind `NO_LIST` such an array is a JSON document.

mod text;

pub use text::write_text;

use crate::cursor::Cursor;
use crate::error::{DecodeError, ValueError};
use crate::rows::{read_value, Fault, Taken, ValueSink};
use crate::schema::ColumnType;
use crate::table_map::bit_from_low;
use crate::value_forms::append_prefixed;
use crate::value_forms::put_bits;
use crate::wire::form;

const NO_LIST: u32 = u32::MAX;

/// A value without the length before it.
#[derive(Debug, Clone, Copy)]
pub enum List<'a> {
    Elements(Elements<'a>),
    Document(&'a [u8]),
}

#[derive(Debug, Clone, Copy)]
pub struct Elements<'a> {
    pub count: usize,
    nulls: &'a [u8],
    values: &'a [u8],
}

impl<'a> List<'a> {
    pub fn parse(value: &'a [u8]) -> Result<Self, ValueError> {
        let mut cursor = Cursor::new(value, 0);
        let count = cursor.u32("list").map_err(damaged)?;
        if count == NO_LIST {
            return Ok(Self::Document(cursor.rest()));
        }
        // Each element has a bit here, so a count cannot be larger than the bytes say.
        let count = count as usize;
        let nulls = cursor.take(count.div_ceil(8), "list").map_err(damaged)?;
        Ok(Self::Elements(Elements { count, nulls, values: cursor.rest() }))
    }

    /// The elements of an array that is a list.
    pub fn elements(value: &'a [u8]) -> Result<Elements<'a>, ValueError> {
        match Self::parse(value)? {
            Self::Elements(elements) => Ok(elements),
            Self::Document(_) => Err(ValueError::new(
                "an array with several dimensions, whose first element is not number 1, or with an element \
                 that its type cannot have, which no list can be; `types.arrays: json` has arrays as text",
            )),
        }
    }
}

impl Elements<'_> {
    /// Gives each element to the sink. `before` is called before each, with its number from 0.
    pub fn send<V: ValueSink>(
        self,
        kind: &ColumnType,
        to: &mut V,
        mut before: impl FnMut(&mut V, usize),
    ) -> Taken {
        let wire = form(kind);
        let mut values = Cursor::new(self.values, 0);
        for index in 0..self.count {
            before(to, index);
            if bit_from_low(self.nulls, index) {
                to.null()?;
                continue;
            }
            read_value(&mut values, wire, to).map_err(|fault| match fault {
                Fault::Value(error) => error,
                Fault::Input(error) => damaged(error),
            })?;
        }
        match values.is_empty() {
            true => Ok(()),
            false => Err(ValueError::new("a list with bytes behind its elements")),
        }
    }
}

#[cold]
fn damaged(_: DecodeError) -> ValueError {
    ValueError::new("a list that is cut off")
}

/// Collects the elements of a list that is being written.
#[derive(Default)]
pub struct Written {
    nulls: Vec<bool>,
    values: Vec<u8>,
}

impl Written {
    pub fn null(&mut self) {
        self.nulls.push(true);
    }

    /// Where to write the next element in the form of its type.
    pub fn element(&mut self) -> &mut Vec<u8> {
        self.nulls.push(false);
        &mut self.values
    }

    /// Appends the list with its length before it. None: it is too long.
    pub fn finish(self, out: &mut Vec<u8>) -> Option<()> {
        let count = u32::try_from(self.nulls.len()).ok().filter(|count| *count != NO_LIST)?;
        append_prefixed(out, |out| {
            out.extend_from_slice(&count.to_le_bytes());
            put_bits(self.nulls.into_iter(), out);
            out.extend_from_slice(&self.values);
            Some(())
        })
    }
}

/// Appends an array that is no list, with its length before it. `write` appends the document.
pub fn append_document(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ValueError>,
) -> Result<(), ValueError> {
    let mut result = Ok(());
    append_prefixed(out, |out| {
        out.extend_from_slice(&NO_LIST.to_le_bytes());
        result = write(out);
        Some(())
    })
    .ok_or_else(|| ValueError::new("an array of more than 4 GiB"))?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::{Arrays, ColumnBuilder, TypeOptions};
    use crate::value_forms::append_bytes;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::Array;
    use proptest::prelude::*;

    const BIGINT: ColumnType = ColumnType::Integer { width: 8, unsigned: false };

    fn builder(element: ColumnType, arrays: Arrays) -> ColumnBuilder {
        let options = TypeOptions { arrays, ..TypeOptions::default() };
        ColumnBuilder::new(ColumnType::List(Box::new(element)), options)
    }

    fn value(numbers: &[Option<i64>]) -> Vec<u8> {
        let (mut list, mut out) = (Written::default(), Vec::new());
        for number in numbers {
            match number {
                Some(number) => list.element().extend_from_slice(&number.to_le_bytes()),
                None => list.null(),
            }
        }
        list.finish(&mut out).unwrap();
        out
    }

    fn text(element: &ColumnType, value: &[u8]) -> String {
        let mut out = Vec::new();
        write_text(element, value, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn a_list_has_the_elements_that_were_written(
            rows in proptest::collection::vec(
                proptest::option::of(proptest::collection::vec(proptest::option::of(any::<i64>()), 0..20)),
                0..20,
            ),
        ) {
            let (mut lists, mut texts) = (builder(BIGINT, Arrays::List), builder(BIGINT, Arrays::Json));
            for row in &rows {
                match row {
                    None => { lists.append_null(); texts.append_null(); }
                    Some(numbers) => {
                        let value = value(numbers);
                        lists.append_list(&value[4..]).unwrap();
                        texts.append_list(&value[4..]).unwrap();
                    }
                }
            }
            prop_assert_eq!(lists.len(), rows.len());
            let (lists, texts) = (lists.finish().unwrap(), texts.finish().unwrap());
            let lists = lists.as_list::<i32>();
            for (index, row) in rows.iter().enumerate() {
                prop_assert_eq!(lists.is_null(index), row.is_none());
                let Some(numbers) = row else { continue };
                let found: Vec<_> = lists.value(index).as_primitive::<Int64Type>().iter().collect();
                prop_assert_eq!(&found, numbers);
                let shown = texts.as_string::<i32>().value(index);
                let read: Vec<Option<i64>> = serde_json::from_str(shown).unwrap();
                prop_assert_eq!(&read, numbers);
            }
        }

        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            for element in [BIGINT, ColumnType::Numeric, ColumnType::Boolean, ColumnType::Json] {
                let _ = write_text(&element, &bytes, &mut Vec::new());
                let mut builder = builder(element, Arrays::List);
                let _ = builder.append_list(&bytes);
                prop_assert!(builder.bytes() < 16 * 8 * 40);
            }
        }
    }

    #[test]
    fn a_count_that_the_bytes_do_not_have_costs_nothing() {
        for count in [u32::MAX - 1, 1 << 20, 9] {
            let mut bytes = count.to_le_bytes().to_vec();
            bytes.push(0xff);
            assert!(List::parse(&bytes).is_err());
        }
        assert!(List::parse(&[1, 0]).is_err());
        let mut longer = value(&[Some(1)]);
        longer.push(0);
        assert!(builder(BIGINT, Arrays::List).append_list(&longer[4..]).is_err());
    }

    #[test]
    fn an_array_that_is_no_list_is_text_only() {
        let mut out = Vec::new();
        append_document(&mut out, |out| {
            out.extend_from_slice(b"[[1,2],[3,4]]");
            Ok(())
        })
        .unwrap();
        assert_eq!(text(&BIGINT, &out[4..]), "[[1,2],[3,4]]");
        let error = builder(BIGINT, Arrays::List).append_list(&out[4..]).unwrap_err();
        assert!(error.to_string().contains("several dimensions"), "{error}");
    }

    #[test]
    fn texts_of_lists_are_documents() {
        let of = |elements: &[Option<&[u8]>]| {
            let (mut list, mut out) = (Written::default(), Vec::new());
            for element in elements {
                match element {
                    Some(bytes) => append_bytes(bytes, list.element()).unwrap(),
                    None => list.null(),
                }
            }
            list.finish(&mut out).unwrap();
            out[4..].to_vec()
        };
        let words = ColumnType::Text { charset: crate::charset::Charset::Utf8, trimmed: false };
        assert_eq!(text(&words, &of(&[])), "[]");
        assert_eq!(text(&words, &of(&[Some(b"a\"b"), None, Some(b"")])), r#"["a\"b",null,""]"#);
        assert_eq!(text(&ColumnType::Numeric, &of(&[Some(b"1.50"), Some(b"NaN")])), r#"[1.50,"NaN"]"#);
        assert_eq!(text(&ColumnType::Json, &of(&[Some(b"{\"a\": 1}"), Some(b"x")])), r#"[{"a": 1},"x"]"#);
    }
}
