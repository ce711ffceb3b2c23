//! The source's files that a part of a relay log was received from.
//!
//! A relay log does not have the ends of the source's files, and its events have the low 32 bits of their
//! positions. The index has the source's place at some offsets. Between two of them with different files, the
//! next file begins where positions fall.

use crate::transaction::{KnownPlace, Transaction};

/// The names of the source's files for places in a log.
#[derive(Debug, Clone, Default)]
pub struct SourceNames {
    /// In order of offsets. The first is at or before the part's start, the last at or behind its end.
    known: Vec<KnownPlace>,
    next: usize,
    position: u64,
    changed: bool,
}

const LOW: u64 = 0xffff_ffff;

impl SourceNames {
    pub fn new(known: Vec<KnownPlace>) -> Self {
        let position = known.first().map_or(0, |first| first.position);
        Self { known, next: 1, position, changed: false }
    }

    /// The file and position of an event that begins at `offset`, and of which the log has the low bits of
    /// its position. To be called with growing offsets.
    pub fn place(&mut self, offset: u64, low: u32) -> (&str, u64) {
        while self.known.get(self.next).is_some_and(|known| known.offset <= offset) {
            if let Some(passed) = self.known.get(self.next) {
                self.position = passed.position;
            }
            self.next += 1;
            self.changed = false;
        }
        let before = self.known.get(self.next - 1);
        let after = self.known.get(self.next).or(before);
        let (Some(before), Some(after)) = (before, after) else { return ("", low.into()) };
        let mut position = self.position & !LOW | u64::from(low);
        if before.file != after.file && !self.changed && u64::from(low) < self.position & LOW {
            self.changed = true;
            position = low.into();
        } else if position + (LOW / 2) < self.position {
            // Beyond the next multiple of 2^32.
            position += LOW + 1;
        }
        self.position = position;
        let file = if self.changed { &after.file } else { &before.file };
        (file, position)
    }
}

/// Makes whole positions of the low bits of the positions of a transaction's events.
pub fn complete_places(transaction: &mut Transaction) {
    let begin = transaction.position;
    for place in [&mut transaction.begin_event, &mut transaction.end_event] {
        place.position = match place.position {
            0 => begin,
            low => whole_position(begin, low as u32),
        };
    }
}

/// The position in the source's file of an event of a transaction that begins at `begin`, from its low bits.
pub fn whole_position(begin: u64, low: u32) -> u64 {
    let position = begin & !LOW | u64::from(low);
    // Beyond the next multiple of 2^32.
    if position < begin && begin - position > LOW / 2 {
        position + LOW + 1
    } else {
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(offset: u64, file: &str, position: u64) -> KnownPlace {
        KnownPlace { offset, file: file.into(), position }
    }

    #[test]
    fn a_file_begins_where_positions_fall() {
        let mut names =
            SourceNames::new(vec![known(100, "a", 1000), known(500, "b", 300), known(900, "b", 700)]);
        assert_eq!(names.place(100, 1000), ("a", 1000));
        assert_eq!(names.place(200, 1100), ("a", 1100));
        assert_eq!(names.place(300, 157), ("b", 157));
        assert_eq!(names.place(400, 200), ("b", 200));
        assert_eq!(names.place(600, 400), ("b", 400));
    }

    #[test]
    fn positions_beyond_four_gigabytes_are_whole() {
        let mut names = SourceNames::new(vec![known(0, "a", 0xffff_ff00), known(900, "a", 0x1_0000_1000)]);
        assert_eq!(names.place(0, 0xffff_ff00), ("a", 0xffff_ff00));
        assert_eq!(names.place(10, 0x20), ("a", 0x1_0000_0020));
        assert_eq!(names.place(20, 0x40), ("a", 0x1_0000_0040));
    }
}
