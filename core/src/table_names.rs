//! The tables of a log, by number: a number (*slot*) is found for each event without making text of names.

use hashbrown::HashMap;

use crate::json_text::quoted;
use crate::table_name;

/// Limit of the names, and of the table ids, that are remembered.
const NAMES_MAX: usize = 100_000;

#[derive(Default)]
pub struct TableNames {
    /// The names, by slot.
    names: Vec<Name>,
    /// The slots, by `Name::bytes`.
    slots: HashMap<Box<[u8]>, usize>,
    /// The slots, by table id.
    ids: HashMap<u64, usize>,
}

struct Name {
    /// The length of the database's name, this name, and the table's: different tables have different bytes.
    bytes: Box<[u8]>,
    /// The table's key in an entry, as JSON.
    key: String,
}

impl Name {
    #[inline]
    fn is(&self, database: &[u8], table: &[u8]) -> bool {
        let known = &*self.bytes;
        known.len() == 1 + database.len() + table.len()
            && usize::from(known[0]) == database.len()
            && known[1..].starts_with(database)
            && known.ends_with(table)
    }
}

impl TableNames {
    /// Whether there are so many names that the owner should begin with none.
    pub fn is_full(&self) -> bool {
        self.names.len() > NAMES_MAX
    }

    /// The table's key in an entry, as JSON.
    pub fn key(&self, slot: usize) -> &str {
        &self.names[slot].key
    }

    /// The slot of the table that the last table map with this id announced.
    #[inline]
    pub fn slot_of(&self, id: u64) -> Option<usize> {
        self.ids.get(&id).copied()
    }

    /// The slot of the table that a table map announces. A new table gets the next free number.
    pub fn slot(&mut self, id: u64, database: &[u8], table: &[u8]) -> usize {
        if let Some(&slot) = self.ids.get(&id) {
            if self.names[slot].is(database, table) {
                return slot;
            }
        }
        // Lengths of names are one byte in a table map.
        let bytes: Box<[u8]> = [&[database.len() as u8], database, table].concat().into();
        let slot = match self.slots.get(&bytes) {
            Some(&slot) => slot,
            None => {
                let text = table_name::index_key(
                    &String::from_utf8_lossy(database),
                    &String::from_utf8_lossy(table),
                );
                self.names.push(Name { bytes: bytes.clone(), key: quoted(&text) });
                self.slots.insert(bytes, self.names.len() - 1);
                self.names.len() - 1
            }
        };
        if self.ids.len() > NAMES_MAX {
            // Table ids only grow, so ids of closed tables are useless.
            self.ids.clear();
        }
        self.ids.insert(id, slot);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_whose_joined_names_are_equal_are_told_apart_also_under_one_id() {
        let mut names = TableNames::default();
        let slots = [(&b"a.b"[..], &b"c"[..]), (b"a", b"b.c"), (b"a.b", b"c")]
            .map(|(database, table)| names.slot(7, database, table));
        assert_eq!(slots, [0, 1, 0]);
        assert_eq!([0, 1].map(|slot| names.key(slot)), [r#""`a.b`.c""#, r#""`a`.b.c""#]);
    }
}
