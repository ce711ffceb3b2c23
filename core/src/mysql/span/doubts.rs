//! Rows of which the log does not say whether a ROLLBACK TO took them back: see `savepoints.rs`.

use std::collections::BTreeSet;

use crate::mysql::query::Statement;
use crate::mysql::savepoints::Target;

/// A ROLLBACK TO that has perhaps taken back rows of these tables, since the savepoint at `first`.
pub struct Doubt {
    first: u64,
    pub tables: BTreeSet<usize>,
    pub database: Vec<u8>,
    pub sql: Vec<u8>,
}

/// A savepoint of the transaction, and the tables with rows between it and the one before. None: a span has
/// ended between them.
struct Saved {
    place: u64,
    tables: Option<Vec<usize>>,
}

/// The savepoints of a transaction, and what is doubtful in it.
#[derive(Default)]
pub struct Doubts {
    saved: Vec<Saved>,
    /// Row events of the span's tables at the last savepoint.
    counts: Vec<u64>,
    found: Vec<Doubt>,
}

impl Doubts {
    /// Records a savepoint. `begin`: where its transaction begins. `span`: where the span begins. `touched`:
    /// the span's tables, and `counts` their row events, by table.
    #[cold]
    pub fn save(&mut self, place: u64, begin: u64, span: u64, touched: &[usize], counts: &[(u64, u64)]) {
        self.saved.retain(|saved| saved.place > begin);
        let same_span = self.saved.last().is_some_and(|saved| saved.place >= span);
        let count = |slot: &usize| counts.get(*slot).map_or(0, |count| count.0);
        let grown = |(at, slot): &(usize, &usize)| count(slot) > self.counts.get(*at).copied().unwrap_or(0);
        let tables =
            same_span.then(|| touched.iter().enumerate().filter(grown).map(|(_, slot)| *slot).collect());
        self.counts = touched.iter().map(count).collect();
        self.saved.push(Saved { place, tables });
    }

    pub fn begin_span(&mut self) {
        self.counts.clear();
    }

    /// Records a ROLLBACK TO that may have taken back the rows since an earlier savepoint, if there are any.
    /// `known`: the number of tables of which there may be rows.
    #[cold]
    pub fn doubt(&mut self, statement: &Statement<'_>, target: Target, known: usize) {
        let between =
            self.saved.iter().filter(|saved| (target.first + 1..=target.place).contains(&saved.place));
        let tables: Option<Vec<&Vec<usize>>> = between.map(|saved| saved.tables.as_ref()).collect();
        let tables: BTreeSet<usize> = match tables {
            Some(lists) => lists.into_iter().flatten().copied().collect(),
            None => (0..known).collect(),
        };
        if !tables.is_empty() {
            let (database, sql) = (statement.database.to_vec(), statement.sql.to_vec());
            self.found.push(Doubt { first: target.first, tables, database, sql });
        }
    }

    /// Rows since a place are taken back, so no doubt is left about them.
    pub fn take_back(&mut self, since: u64) {
        self.saved.retain(|saved| saved.place <= since);
        self.found.retain(|doubt| doubt.first < since);
    }

    /// The doubts of a transaction that has ended.
    pub fn take(&mut self) -> Vec<Doubt> {
        std::mem::take(&mut self.found)
    }
}
