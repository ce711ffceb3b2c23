//! The name of a table as text, as `penstock.model.name` writes and reads it.

use std::borrow::Cow;

/// `database.table`. A database with a dot is in backticks, so that the text has one meaning: `` `a.b`.t ``
/// is not
/// `a.b.t`, the table `b.t` of the database `a`. A database that begins with a backtick is in backticks, too.
pub fn text(database: &str, table: &str) -> String {
    let quotes = database.contains('.') || database.starts_with('`');
    format!("{}.{}", quoted(database, quotes), quoted(table, table.starts_with('`')))
}

/// The key of a table in an index entry: its text, in which the database also stands in backticks where the
/// table has a dot. Entries written before names were quoted have `a.b.t` for two tables; these keys never
/// look like that.
pub fn index_key(database: &str, table: &str) -> String {
    if !table.contains('.') {
        return text(database, table);
    }
    format!("{}.{}", quoted(database, true), quoted(table, table.starts_with('`')))
}

fn quoted(name: &str, quotes: bool) -> Cow<'_, str> {
    if quotes {
        Cow::Owned(format!("`{}`", name.replace('`', "``")))
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_tables_are_different_texts() {
        assert_eq!(text("shop", "orders"), "shop.orders");
        assert_eq!(text("a.b", "t"), "`a.b`.t");
        assert_eq!(text("a", "b.t"), "a.b.t");
        assert_eq!(text("x`y", "t"), "x`y.t");
        assert_eq!(text("`x", "`t"), "```x`.```t`");
    }

    #[test]
    fn keys_of_an_index_have_one_dot_or_backticks() {
        assert_eq!(index_key("shop", "orders"), "shop.orders");
        assert_eq!(index_key("a.b", "t"), "`a.b`.t");
        assert_eq!(index_key("a", "b.t"), "`a`.b.t");
    }
}
