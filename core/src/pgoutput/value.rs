//! How the values of one column are read: those of types in `wire::Sent` by `sent`, all others here.
//!
//! Whatever takes values is a `ValueSink`: a builder of Arrow, or `Form`, which writes values in the forms of
//! images (`wire::form`).

use super::array;
use super::sent;
use super::shown;
use super::types::{PgType, MONEY_SCALE};
use crate::decimal::{write_image, DecimalImage};
use crate::error::ValueError;
use crate::list::append_document;
use crate::network::Network;
use crate::schema::ColumnType;
use crate::temporal::{Date, DateTime, Instant, Time};
use crate::value_forms::{append_bytes, append_date, append_datetime, append_time};
use crate::value_sink::{Taken, ValueSink};
use crate::wire::{form, Sent, WireType};

/// One column.
#[derive(Debug, Clone)]
pub struct Target {
    /// The type of the values, of a domain that of its base.
    kind: PgType,
    column: ColumnType,
    way: Way,
}

/// How its values are read.
#[derive(Debug, Clone)]
enum Way {
    Sent(Sent),
    /// As SELECT prints them.
    Shown,
    /// Arrays as JSON.
    Document(PgType),
    /// Arrays as lists of these elements.
    List(Box<Target>),
    /// The column cannot have them.
    Unfit,
}

/// Bytes of the length before a list.
const LIST_HEAD: usize = 4;

#[cold]
fn unfit() -> ValueError {
    ValueError::new("a value that does not fit the column's type")
}

impl Target {
    /// `kind`: the type of the values, of a domain that of its base.
    pub fn new(kind: PgType, column: ColumnType) -> Self {
        use ColumnType as C;
        use PgType as P;
        let way = match (&kind, &column) {
            (P::Bool, C::Boolean) => Way::Sent(Sent::Bool),
            (P::Int2, C::Integer { width: 2, unsigned: false }) => Way::Sent(Sent::Int2),
            (P::Int4, C::Integer { width: 4, unsigned: false }) => Way::Sent(Sent::Int4),
            (P::Int8, C::Integer { width: 8, unsigned: false }) => Way::Sent(Sent::Int8),
            (P::Oid, C::Integer { width: 8, unsigned: false }) => Way::Sent(Sent::Oid),
            (P::Xid8, C::Decimal { precision: 20, scale: 0 }) => Way::Sent(Sent::Xid8),
            (P::Float4, C::Float) => Way::Sent(Sent::Float4),
            (P::Float8, C::Double) => Way::Sent(Sent::Float8),
            (P::Numeric, C::Decimal { precision, scale }) => {
                Way::Sent(Sent::Numeric { precision: *precision, scale: *scale })
            }
            (P::Money, C::Decimal { precision, scale: MONEY_SCALE }) => {
                Way::Sent(Sent::Money { precision: *precision, scale: MONEY_SCALE })
            }
            (P::Text, C::Text { .. }) => Way::Sent(Sent::Text),
            (P::Bytea, C::Binary { .. }) => Way::Sent(Sent::Bytea),
            (P::Json, C::Json) => Way::Sent(Sent::Json),
            (P::Jsonb, C::Json) => Way::Sent(Sent::Jsonb),
            (P::Date, C::Date) => Way::Sent(Sent::Date),
            (P::Timestamp, C::DateTime { fsp }) => Way::Sent(Sent::Timestamp { fsp: *fsp }),
            (P::TimestampTz, C::Timestamp { .. }) => Way::Sent(Sent::TimestampTz),
            (P::Time, C::Time { fsp }) => Way::Sent(Sent::Time { fsp: *fsp }),
            (P::Uuid, C::Network(Network::Uuid)) => Way::Sent(Sent::Uuid),
            (P::Array(of), C::Json) => Way::Document((**of).clone()),
            (P::Array(of), C::List(element)) => {
                Way::List(Box::new(Self::new((**of).clone(), (**element).clone())))
            }
            (_, C::Text { .. } | C::Numeric | C::Interval) => Way::Shown,
            _ => Way::Unfit,
        };
        Self { kind, column, way }
    }

    /// The form of its values in images.
    pub fn wire(&self) -> WireType {
        match self.way {
            Way::Sent(of) => WireType::Sent(of),
            _ => form(&self.column),
        }
    }

    /// Whether values are in images as they were sent.
    #[inline(always)]
    pub fn stays(&self) -> bool {
        matches!(self.way, Way::Sent(_))
    }

    /// Sends a value that came in its binary form.
    #[inline]
    pub fn binary<V: ValueSink>(&self, bytes: &[u8], to: &mut V) -> Taken {
        match &self.way {
            Way::Sent(of) => sent::binary(*of, bytes, to),
            _ => self.made(bytes, to),
        }
    }

    /// The same of values that are made of others, or shown.
    #[inline(never)]
    fn made<V: ValueSink>(&self, bytes: &[u8], to: &mut V) -> Taken {
        let mut made = Vec::new();
        match &self.way {
            Way::Sent(of) => sent::binary(*of, bytes, to),
            Way::Shown => {
                shown::write(&self.kind, bytes, &mut made)?;
                to.bytes(&made)
            }
            Way::Document(of) => {
                array::write_binary(of, bytes, &mut made)?;
                to.json_text(&made)
            }
            Way::List(of) => {
                let append = |bytes: &[u8], out: &mut Vec<u8>| of.binary(bytes, &mut of.form(out));
                let taken = array::list_of_binary(&of.kind, bytes, append, &mut made);
                // An element may be what its type in lists cannot have. Its text has it.
                or_document(taken, &mut made, |out| array::write_binary(&of.kind, bytes, out))?;
                to.list(&made[LIST_HEAD..])
            }
            Way::Unfit => Err(unfit()),
        }
    }

    /// Sends a value that came as text.
    pub fn text<V: ValueSink>(&self, text: &[u8], to: &mut V) -> Taken {
        let mut made = Vec::new();
        match &self.way {
            Way::Sent(of) => sent::text(*of, text, to),
            Way::Shown => to.bytes(text),
            Way::Document(of) => {
                array::write_text(of, text, &mut made)?;
                to.json_text(&made)
            }
            Way::List(of) => {
                let append = |text: &[u8], out: &mut Vec<u8>| of.text(text, &mut of.form(out));
                let taken = array::list_of_text(&of.kind, text, append, &mut made);
                or_document(taken, &mut made, |out| array::write_text(&of.kind, text, out))?;
                to.list(&made[LIST_HEAD..])
            }
            Way::Unfit => Err(unfit()),
        }
    }

    /// Writes values in the form that images and lists have without a source's own.
    pub fn form<'a>(&'a self, out: &'a mut Vec<u8>) -> Form<'a> {
        Form { column: &self.column, out }
    }
}

fn or_document(taken: Taken, list: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Taken) -> Taken {
    taken.or_else(|_| {
        list.clear();
        append_document(list, write)
    })
}

/// See `Target::form`.
pub struct Form<'a> {
    column: &'a ColumnType,
    out: &'a mut Vec<u8>,
}

impl Form<'_> {
    fn prefixed(&mut self, value: &[u8]) -> Taken {
        append_bytes(value, self.out).ok_or_else(unfit)
    }
}

/// Of the types of PostgreSQL: others are not sent here.
impl ValueSink for Form<'_> {
    fn null(&mut self) -> Taken {
        Err(unfit())
    }

    fn boolean(&mut self, value: bool) -> Taken {
        self.out.push(value.into());
        Ok(())
    }

    fn int(&mut self, value: i64) -> Taken {
        let ColumnType::Integer { width, .. } = self.column else { return Err(unfit()) };
        self.out.extend_from_slice(&value.to_le_bytes()[..usize::from(*width)]);
        Ok(())
    }

    fn uint(&mut self, _: u64) -> Taken {
        Err(unfit())
    }

    fn float(&mut self, value: f32) -> Taken {
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn double(&mut self, value: f64) -> Taken {
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn number(&mut self, unscaled: i128, precision: u8, scale: u8) -> Taken {
        write_image(unscaled < 0, unscaled.unsigned_abs(), precision, scale, self.out).ok_or_else(unfit)
    }

    fn decimal(&mut self, _: DecimalImage<'_>) -> Taken {
        Err(unfit())
    }

    fn bytes(&mut self, value: &[u8]) -> Taken {
        self.prefixed(value)
    }

    fn bit(&mut self, _: u64) -> Taken {
        Err(unfit())
    }

    fn year(&mut self, _: u16) -> Taken {
        Err(unfit())
    }

    fn date(&mut self, value: Date) -> Taken {
        append_date(value, self.out);
        Ok(())
    }

    fn datetime(&mut self, value: DateTime) -> Taken {
        let ColumnType::DateTime { fsp } = self.column else { return Err(unfit()) };
        append_datetime(value, *fsp, self.out);
        Ok(())
    }

    fn timestamp(&mut self, value: Instant) -> Taken {
        let Instant::Micros(micros) = value else { return Err(unfit()) };
        self.out.extend_from_slice(&micros.to_le_bytes());
        Ok(())
    }

    fn time(&mut self, value: Time) -> Taken {
        let ColumnType::Time { fsp } = self.column else { return Err(unfit()) };
        append_time(value, *fsp, self.out);
        Ok(())
    }

    fn label(&mut self, _: u64) -> Taken {
        Err(unfit())
    }

    fn json(&mut self, _: &[u8]) -> Taken {
        Err(unfit())
    }

    fn json_text(&mut self, text: &[u8]) -> Taken {
        self.prefixed(text)
    }

    fn list(&mut self, value: &[u8]) -> Taken {
        self.prefixed(value)
    }

    fn json_changed(&mut self, _: Option<&[u8]>, _: &[u8]) -> Taken {
        Err(unfit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_the_same_list_unless_the_array_is_none() {
        let column = ColumnType::Integer { width: 4, unsigned: false };
        let to = Target::new(PgType::of(1007), ColumnType::List(Box::new(column.clone())));
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
        let of_text = |text: &[u8]| {
            let mut out = Vec::new();
            to.text(text, &mut to.form(&mut out)).unwrap();
            out
        };
        let of_binary = |bytes: &[u8]| {
            let mut out = Vec::new();
            to.binary(bytes, &mut to.form(&mut out)).unwrap();
            out
        };
        let binary = of_binary(&numbers(&[1, 1, 23, 3, 1, 4, 7, u32::MAX, 4, u32::MAX]));
        assert_eq!(of_text(b"{7,NULL,-1}"), binary);
        let mut shown = Vec::new();
        crate::list::write_text(&column, &binary[4..], &mut shown).unwrap();
        assert_eq!(shown, b"[7,null,-1]");
        for (sent, document) in [("[0:1]={1,2}", "[1,2]"), ("{{1,2},{3,4}}", "[[1,2],[3,4]]")] {
            let out = of_text(sent.as_bytes());
            assert_eq!(&out[8..], document.as_bytes());
            assert!(crate::list::List::elements(&out[4..]).is_err());
        }
        assert_eq!(&of_binary(&numbers(&[1, 0, 23, 1, 0, 4, 7]))[8..], b"[7]");
    }
}
