//! The savepoints of a transaction, and which rows a rollback takes back.
//!
//! A savepoint is in the log if its rows could not be removed from the transaction. The rows between the
//! savepoint and the rollback are then in the log, but do not count.

/// Each savepoint with its place, in the order in which they were set. A place is what the reader of the log
/// counts by: an offset, or the number of an event.
#[derive(Debug, Clone, Default)]
pub struct Savepoints(Vec<(String, u64)>);

impl Savepoints {
    pub fn set(&mut self, written: &[u8], place: u64) {
        let name = unquoted(written, true);
        self.0.push((name, place));
    }

    /// The place of the savepoint to which a transaction goes back. It stays, the later ones are gone. None:
    /// the savepoint is not in the log, because it was set before the first change.
    pub fn roll_back_to(&mut self, written: &[u8]) -> Option<u64> {
        // MySQL 5.7 doubles the quotes inside of a name in SAVEPOINT, but not in ROLLBACK TO.
        let names = [unquoted(written, true), unquoted(written, false)];
        let find = |same: fn(&str, &str) -> bool| {
            self.0.iter().rposition(|(known, _)| names.iter().any(|name| same(known, name)))
        };
        let at = find(equal).or_else(|| find(equal_but_for_accents))?;
        self.0.truncate(at + 1);
        self.0.last().map(|(_, place)| *place)
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

    #[test]
    fn a_name_is_the_same_however_it_is_quoted() {
        let written =
            ["`A b`", "\"a B\"", "`q``a\"`", "\"q`A\"\"\"", "`q`a\"`", "x", "`X` /* y */", "É", "e"];
        let same = [(0, 1), (2, 3), (2, 4), (5, 6), (7, 8)];
        for (left, right) in same {
            assert_eq!(set(&[written[left]]).roll_back_to(written[right].as_bytes()), Some(0), "{left}");
        }
        assert_eq!(set(&["`a`", "`b`"]).roll_back_to(b"`c`"), None);
        assert_eq!(set(&["`é`", "`e`"]).roll_back_to("`É`".as_bytes()), Some(0));
    }

    #[test]
    fn later_savepoints_are_gone_after_a_rollback() {
        let mut savepoints = set(&["a", "b", "A", "c"]);
        assert_eq!(savepoints.roll_back_to(b"a"), Some(2));
        assert_eq!(savepoints.roll_back_to(b"c"), None);
        assert_eq!(savepoints.roll_back_to(b"b"), Some(1));
        assert_eq!(savepoints.roll_back_to(b"b"), Some(1));
        assert_eq!(savepoints.roll_back_to(b"a"), Some(0));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_name(one: Vec<u8>, other: Vec<u8>) {
            let mut savepoints = Savepoints::default();
            savepoints.set(&one, 7);
            let _ = savepoints.roll_back_to(&other);
            savepoints.set(&one, 8);
            proptest::prop_assert_eq!(savepoints.roll_back_to(&one), Some(8));
        }
    }
}
