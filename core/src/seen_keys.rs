//! The keys that were found while the log is read backwards. For each key it is known whether later changes
//! give the whole row, or which of its columns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use crate::key::Key;

/// A set of the table's columns: one bit for each column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Box<[u64]>);

impl Columns {
    /// The columns, of `count`, for which `has` is true.
    pub fn of(count: usize, has: impl Fn(usize) -> bool) -> Self {
        let mut words = vec![u64::MAX; count.div_ceil(64)].into_boxed_slice();
        (0..count).filter(|index| !has(*index)).for_each(|index| words[index / 64] &= !(1 << (index % 64)));
        Self(words)
    }

    pub fn all(&self) -> bool {
        self.0.iter().all(|word| *word == u64::MAX)
    }

    /// Adds other columns. Returns whether one of them was missing.
    fn add(&mut self, others: &Self) -> bool {
        let mut more = false;
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            more |= *word | other != *word;
            *word |= other;
        }
        more
    }
}

/// The keys of all changes that were read so far. They are later in the log than what is read next.
#[derive(Debug, Default)]
pub struct SeenKeys {
    /// Keys for which the whole row, or its deletion, was found.
    whole: HashSet<Key>,
    /// Keys for which only updates that lack columns were found, with the columns of these updates together.
    partial: HashMap<Key, Columns>,
}

impl SeenKeys {
    /// Adds the key of a row with all columns, or of a deletion. Earlier changes of the key do not count any
    /// more. Returns whether this change counts.
    #[inline]
    pub fn insert(&mut self, key: Key) -> bool {
        let is_new = self.whole.insert(key);
        if is_new && !self.partial.is_empty() {
            self.partial.remove(&key);
        }
        is_new
    }

    /// Adds the key of a row of which only these columns are known. Returns whether one of them was not known
    /// before.
    pub fn add(&mut self, key: Key, columns: &Columns) -> bool {
        if self.whole.contains(&key) {
            return false;
        }
        match self.partial.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(columns.clone());
                true
            }
            // The key stays partial even when all columns are known: only a whole row ends its changes.
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

/// Keys that several decoders add and look up.
#[derive(Debug, Clone, Default)]
pub struct SharedKeys(Arc<Mutex<SeenKeys>>);

impl SharedKeys {
    pub fn lock(&self) -> MutexGuard<'_, SeenKeys> {
        // The set is consistent at any time, even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
