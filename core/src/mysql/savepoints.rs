//! The savepoints of a transaction, and which rows a rollback takes back.
//!
//! A savepoint is in the log if its rows could not be removed from the transaction. The rows between the
//! savepoint and the rollback are then in the log, but do not count.
//!
//! A savepoint that is set again is at its new place only. But those of functions and triggers are of a level
//! of their own: they end with it, and leave one of the same name as it was. The log has both alike.
//! (A savepoint that is not in the log is no such doubt: nothing was logged before it, so going back to it is
//! logged as ROLLBACK.)

/// Each savepoint with its place, in the order in which they were set. A place is what the reader of the log
/// counts by: an offset, or the number of an event.
#[derive(Debug, Clone, Default)]
pub struct Savepoints(Vec<(String, u64)>);

/// What a statement does with savepoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Savepoint {
    Set,
    RolledBackTo(Target),
}

/// Where a transaction goes back to. `first`: the earliest savepoint of the same name that is left. If it is
/// not at `place`, the last one may have been that of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub place: u64,
    pub first: u64,
}

impl Savepoints {
    pub fn set(&mut self, written: &[u8], place: u64) {
        let name = unquoted(written, true);
        self.0.push((name, place));
    }

    /// The savepoint to which a transaction goes back. It stays, the later ones are gone. None: the savepoint
    /// is not in the log, because it was set before the first change.
    pub fn roll_back_to(&mut self, written: &[u8]) -> Option<Target> {
        // MySQL 5.7 doubles the quotes inside of a name in SAVEPOINT, but not in ROLLBACK TO.
        let names = [unquoted(written, true), unquoted(written, false)];
        let matches = |same: fn(&str, &str) -> bool, known: &str| names.iter().any(|name| same(known, name));
        let find = |same| self.0.iter().rposition(|(known, _)| matches(same, known));
        let at = find(equal).or_else(|| find(equal_but_for_accents))?;
        let first = self.0.iter().find(|(known, _)| matches(equal_but_for_accents, known))?.1;
        self.0.truncate(at + 1);
        self.0.last().map(|(_, place)| Target { place: *place, first })
    }
}

/// A name without its quotes, in lower case: the server does not distinguish case. Names are UTF-8 in every
/// log. The quote depends on the session's `sql_mode`, and a session may leave it out
/// (`sql_quote_show_create`).
fn unquoted(written: &[u8], doubled: bool) -> String {
    let written = String::from_utf8_lossy(written.trim_ascii());
    for quote in ['`', '"'] {
        let Some(inner) = written.strip_prefix(quote) else { continue };
        // A client's own text may go on behind the name.
        let end = if doubled { end_of_name(inner, quote) } else { inner.rfind(quote) };
        let inner = &inner[..end.unwrap_or(inner.len())];
        let twice = [quote, quote].iter().collect::<String>();
        return if doubled { inner.replace(&twice, &quote.to_string()) } else { inner.to_owned() }
            .to_lowercase();
    }
    let end = written.find(|c: char| c.is_ascii_whitespace() || matches!(c, ';' | '/' | '#'));
    written[..end.unwrap_or(written.len())].to_lowercase()
}

/// The position of the quote that ends a name, in which quotes are doubled.
fn end_of_name(inner: &str, quote: char) -> Option<usize> {
    let mut rest = inner.match_indices(quote).map(|(at, _)| at).peekable();
    while let Some(at) = rest.next() {
        if rest.next_if_eq(&(at + 1)).is_none() {
            return Some(at);
        }
    }
    None
}

fn equal(left: &str, right: &str) -> bool {
    left == right
}

/// Before MariaDB 11.5, servers do not distinguish accents either. What the server took for the same name has
/// the same characters where both are ASCII.
fn equal_but_for_accents(left: &str, right: &str) -> bool {
    left.chars().count() == right.chars().count()
        && left.chars().zip(right.chars()).all(|(a, b)| a == b || !a.is_ascii() || !b.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> Savepoints {
        let mut savepoints = Savepoints::default();
        for (place, name) in names.iter().enumerate() {
            savepoints.set(name.as_bytes(), place as u64);
        }
        savepoints
    }

    fn place(savepoints: &mut Savepoints, name: &str) -> Option<u64> {
        savepoints.roll_back_to(name.as_bytes()).map(|target| target.place)
    }

    #[test]
    fn a_name_is_the_same_however_it_is_quoted() {
        let written =
            ["`A b`", "\"a B\"", "`q``a\"`", "\"q`A\"\"\"", "`q`a\"`", "x", "`X` /* y */", "É", "e"];
        let same = [(0, 1), (2, 3), (2, 4), (5, 6), (7, 8)];
        for (left, right) in same {
            assert_eq!(place(&mut set(&[written[left]]), written[right]), Some(0), "{left}");
        }
        assert_eq!(place(&mut set(&["`a`", "`b`"]), "`c`"), None);
        assert_eq!(place(&mut set(&["`é`", "`e`"]), "`É`"), Some(0));
    }

    #[test]
    fn later_savepoints_are_gone_after_a_rollback() {
        let mut savepoints = set(&["a", "b", "A", "c"]);
        assert_eq!(place(&mut savepoints, "a"), Some(2));
        assert_eq!(place(&mut savepoints, "c"), None);
        assert_eq!(place(&mut savepoints, "b"), Some(1));
        assert_eq!(place(&mut savepoints, "b"), Some(1));
        assert_eq!(place(&mut savepoints, "a"), Some(0));
    }

    #[test]
    fn a_name_that_was_set_again_has_two_places() {
        let mut savepoints = set(&["a", "b", "`A`", "c"]);
        assert_eq!(savepoints.roll_back_to(b"a"), Some(Target { place: 2, first: 0 }));
        assert_eq!(savepoints.roll_back_to(b"b"), Some(Target { place: 1, first: 1 }));
        assert_eq!(savepoints.roll_back_to(b"a"), Some(Target { place: 0, first: 0 }));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_name(one: Vec<u8>, other: Vec<u8>) {
            let mut savepoints = Savepoints::default();
            savepoints.set(&one, 7);
            let _ = savepoints.roll_back_to(&other);
            savepoints.set(&one, 8);
            proptest::prop_assert_eq!(savepoints.roll_back_to(&one).map(|target| target.place), Some(8));
        }
    }
}
