//! Places in a source's own log.

/// A place, as index entries have it: a file, which may have no name, and a number.
pub trait SourcePlace:
    Clone + Default + PartialEq + From<(String, u64)> + Into<(String, u64)> + Send
{
    fn is_before(&self, other: &Self) -> bool;

    /// Its fields in an index entry.
    fn fields(&self) -> String;
}

/// A place that is one number. 0: none is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Number(pub u64);

impl SourcePlace for Number {
    fn is_before(&self, other: &Self) -> bool {
        self.0 < other.0
    }

    fn fields(&self) -> String {
        format!("\"position\":{}", self.0)
    }
}

impl From<(String, u64)> for Number {
    fn from((_, number): (String, u64)) -> Self {
        Self(number)
    }
}

impl From<Number> for (String, u64) {
    fn from(Number(number): Number) -> Self {
        (String::new(), number)
    }
}

/// A position in PostgreSQL's log, as the server prints it.
pub fn lsn_text(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}
