//! Keys met on the way back through the log, and of each what is known of its row by then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use crate::key::Key;

/// A bit a column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Box<[u64]>);

impl Columns {
    /// Those of `count` columns that `has` names.
    pub fn of(count: usize, has: impl Fn(usize) -> bool) -> Self {
        let mut words = vec![u64::MAX; count.div_ceil(64)].into_boxed_slice();
        (0..count).filter(|index| !has(*index)).for_each(|index| words[index / 64] &= !(1 << (index % 64)));
        Self(words)
    }

    pub fn all(&self) -> bool {
        self.0.iter().all(|word| *word == u64::MAX)
    }

    /// Adds the others; whether one of them was missing.
    fn add(&mut self, others: &Self) -> bool {
        let mut more = false;
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            more |= *word | other != *word;
            *word |= other;
        }
        more
    }
}

#[derive(Debug, Default)]
pub struct Seen {
    whole: HashSet<Key>,
    /// Keys of which only updates that lack columns have been met, with the columns they have together.
    partial: HashMap<Key, Columns>,
}

impl Seen {
    /// A row with all columns, or a deletion: nothing earlier matters. Whether it matters itself.
    #[inline]
    pub fn insert(&mut self, key: Key) -> bool {
        let fresh = self.whole.insert(key);
        if fresh && !self.partial.is_empty() {
            self.partial.remove(&key);
        }
        fresh
    }

    /// A row of which only these columns are known. Whether one of them was not known yet.
    pub fn add(&mut self, key: Key, columns: &Columns) -> bool {
        if self.whole.contains(&key) {
            return false;
        }
        match self.partial.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(columns.clone());
                true
            }
            // Also when all columns are known now: updates do not tell that nothing else is known of the row.
            Entry::Occupied(mut entry) => entry.get_mut().add(columns),
        }
    }

    pub fn is_whole(&self, key: Key) -> bool {
        self.whole.contains(&key)
    }

    pub fn len(&self) -> usize {
        self.whole.len() + self.partial.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn extend(&mut self, other: Self) {
        self.whole.extend(other.whole);
        for (key, columns) in other.partial {
            self.add(key, &columns);
        }
        let whole = &self.whole;
        self.partial.retain(|key, _| !whole.contains(key));
    }
}

/// Keys that several readers fill and ask.
#[derive(Debug, Clone, Default)]
pub struct SharedKeys(Arc<Mutex<Seen>>);

impl SharedKeys {
    pub fn lock(&self) -> MutexGuard<'_, Seen> {
        // A set is whole at every moment, whoever panicked with it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
