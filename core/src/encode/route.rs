//! What decides the partition of a table's messages.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The key of the message, which whoever sends it hashes.
    Key,
    /// Texts of columns, as Kafka's own partitioner hashes them.
    Columns,
    /// The same columns with the hash of Canal's `partitionHash`. `database`: its name counts, too.
    Canal { database: bool },
    /// The transaction.
    Transaction,
}

/// `columns`: names; None: those of the key.
#[derive(Debug, Clone)]
pub struct Route {
    pub by: By,
    pub columns: Option<Vec<String>>,
}

/// A route with the places of its columns in a table.
#[derive(Debug, Clone)]
pub struct Deciding {
    pub by: By,
    pub columns: Vec<usize>,
}

impl Route {
    /// `position`: of a column by its name. Columns that the table does not have count as NULL.
    pub fn of(&self, key: &[usize], position: impl Fn(&str) -> Option<usize>) -> Deciding {
        let columns = match &self.columns {
            None => key.to_vec(),
            Some(names) => names.iter().filter_map(|name| position(name)).collect(),
        };
        Deciding { by: self.by, columns }
    }
}
