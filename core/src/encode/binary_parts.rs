//! Values that are records or arrays in Avro and Protobuf.

use std::marker::PhantomData;

use super::binary::{prefixed, write_bytes, write_tag, Target, FIXED_64, LENGTH, VARINT};
use super::binary_form::Value;
use super::debezium_options::Decimals;
use super::geometry;
use super::json_form::unfit;
use super::unscaled;
use crate::error::ValueError;
use crate::list::List;
use crate::rows::Taken;
use crate::schema::ColumnType;

impl<T: Target> Value<'_, T> {
    /// A number without a declared precision: a record of its scale and its bytes.
    pub(super) fn numeric(&mut self, text: &[u8]) -> Taken {
        match self.options.decimal_handling_mode {
            Decimals::Double => self.float64(unscaled::double(text)?),
            Decimals::String => self.slice(unscaled::shown(text)?),
            Decimals::Precise => {
                let (scale, bytes) = unscaled::with_scale(text)?;
                self.start();
                if T::PROTOBUF {
                    return prefixed::<T, _>(self.out, |out| {
                        write_tag(1, VARINT, out);
                        T::integer(scale as i64, out);
                        write_tag(2, LENGTH, out);
                        write_bytes::<T>(&bytes, out);
                        Ok(())
                    });
                }
                T::integer(scale as i64, self.out);
                write_bytes::<T>(&bytes, self.out);
            }
        }
        Ok(())
    }

    /// A record of the coordinates of a point, the WKB and the SRID.
    pub(super) fn geometry(&mut self, value: &[u8]) -> Taken {
        let (srid, wkb) = geometry::split(value)?;
        let point = match self.column.is_point {
            true => Some(geometry::point(wkb).ok_or_else(|| ValueError::new("a point that is no point"))?),
            false => None,
        };
        self.start();
        if T::PROTOBUF {
            return prefixed::<T, _>(self.out, |out| {
                let mut field = 1;
                for number in point.into_iter().flat_map(|(x, y)| [x, y]) {
                    write_tag(field, FIXED_64, out);
                    out.extend_from_slice(&number.to_le_bytes());
                    field += 1;
                }
                write_tag(field, LENGTH, out);
                write_bytes::<T>(wkb, out);
                if srid != 0 {
                    write_tag(field + 1, VARINT, out);
                    T::integer(srid.into(), out);
                }
                Ok(())
            });
        }
        if let Some((x, y)) = point {
            self.out.extend_from_slice(&x.to_le_bytes());
            self.out.extend_from_slice(&y.to_le_bytes());
            // In a point, the WKB may be null.
            T::integer(1, self.out);
        }
        write_bytes::<T>(wkb, self.out);
        match srid {
            0 => T::integer(0, self.out),
            srid => {
                T::integer(1, self.out);
                T::integer(srid.into(), self.out);
            }
        }
        Ok(())
    }

    /// Avro has arrays. Protobuf has none that may be NULL, or whose elements may be: a list is a message
    /// there, and so is each element.
    pub(super) fn elements(&mut self, value: &[u8]) -> Taken {
        let (ColumnType::List(kind), Some(column), Some(field)) =
            (&self.column.kind, &self.column.element, &self.field.element)
        else {
            return Err(unfit("a list", self.column));
        };
        let elements = List::elements(value)?;
        self.start();
        let Self { options, tools, out, .. } = self;
        if !T::PROTOBUF {
            if elements.count > 0 {
                T::length(elements.count, out);
                let mut to = Value::<T> { options, column, field, tools, out, target: PhantomData };
                elements.send(kind, &mut to, |_, _| {})?;
            }
            self.out.push(0);
            return Ok(());
        }
        prefixed::<T, _>(out, |out| {
            let mut element = Vec::new();
            let mut end = |element: &mut Vec<u8>| {
                write_tag(1, LENGTH, out);
                write_bytes::<T>(element, out);
                element.clear();
            };
            let mut to = Value::<T> { options, column, field, tools, out: &mut element, target: PhantomData };
            elements.send(kind, &mut to, |to, index| {
                if index > 0 {
                    end(to.out);
                }
            })?;
            if elements.count > 0 {
                end(&mut element);
            }
            Ok(())
        })
    }
}
