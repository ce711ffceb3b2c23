//! The positions of the events of many tables in a part of the log, found in one walk over it.
//!
//! A decoder of one table steps over the events of all other tables by their headers. For a thousand
//! tables that is a thousand walks over the same bytes. With an outline, each decoder visits the events of
//! its table only.

/// Limit of the positions of all tables together: 64 MB.
pub const POSITIONS_MAX: usize = 8 << 20;

/// A table, as its place in the caller's list.
pub type Table = usize;

#[derive(Debug)]
pub struct Outline {
    base: u64,
    positions: Vec<Vec<u64>>,
    unclear: Vec<u64>,
}

impl Outline {
    /// From the positions of each table in the file whose first byte has the offset `base`. `unclear`: events
    /// of which only a decoder can tell whether they are of its table. None: there are too many.
    pub fn new(base: u64, positions: Vec<Vec<u64>>, unclear: Vec<u64>) -> Option<Self> {
        let count = unclear.len() + positions.iter().map(Vec::len).sum::<usize>();
        (count <= POSITIONS_MAX).then_some(Self { base, positions, unclear })
    }

    /// What the decoder of a table must read of `(start, end]`: positions in the file, in order.
    pub fn positions(&self, table: Table, start: u64, end: u64) -> Vec<u64> {
        let within = |all: &[u64]| {
            let first = all.partition_point(|position| self.base + position < start);
            let last = all.partition_point(|position| self.base + position < end);
            all.get(first..last).unwrap_or_default().to_vec()
        };
        let mut found = within(self.positions.get(table).map_or(&[], Vec::as_slice));
        found.extend(within(&self.unclear));
        found.sort_unstable();
        found
    }
}
