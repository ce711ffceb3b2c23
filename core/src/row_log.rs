//! The log seam: what decoders and encoders ask of a log, whatever its format.
//!
//! A decoder of one table asks a [`RowScan`] for the table's rows. An encoder asks [`Transactions`] for all
//! rows, whole transactions in the order of the log. Both get rows as the log has them: a [`RowsEvent`] is a
//! run of row images of one kind, and its [`TableMap`] says how the values in them are written. From there on
//! nothing depends on the format. A new format brings these two, and the forms of its values (`wire.rs`).

use std::sync::Arc;

use crate::error::{DecodeError, Result};
use crate::json::Style;
use crate::rows::RowsEvent;
use crate::schema::TableSchema;
use crate::table_map::TableMap;
use crate::transaction::{Survey, Walked};
use crate::window::Direction;

/// What a log's values depend on beside their forms.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dialect {
    /// How the source prints JSON.
    pub json: Style,
    /// Generated columns that an image lacks did not keep their values (MariaDB).
    pub omits_generated: bool,
}

/// The rows of one table in a part of the log.
pub trait RowScan: Send {
    /// Where rows are that the log has together.
    type At: Copy + Send;

    fn table(&self) -> &Arc<TableSchema>;

    fn dialect(&self) -> Dialect;

    /// The next rows of the table; None: at the end of the part.
    fn next_rows(&mut self) -> Result<Option<Self::At>>;

    /// How the images of these rows are written, adapted to the table's definition.
    fn map(&self, at: &Self::At) -> Arc<TableMap>;

    /// Where they are in the log.
    fn offset(&self, at: &Self::At) -> u64;

    /// When their transaction was committed, in microseconds since 1970.
    fn commit_us(&self, at: &Self::At) -> i64;

    /// Reads the rows and checks that they fit their map. `direction`: that of the next calls. A log whose
    /// tuples are not images (`rows.rs`) rewrites them into a buffer of the scan (`RowsEvent::record`).
    fn rows(&mut self, at: &Self::At, map: &TableMap, direction: Direction) -> Result<RowsEvent<'_>>;

    /// Adds the table and the file's name to an error of its rows.
    fn locate(&self, error: DecodeError) -> DecodeError;
}

/// The transactions of some parts of a log, one after the other.
///
/// Each transaction is read twice. The *survey* finds what a message has that the log says only behind the
/// row. The *walk* gives the rows. So the memory does not depend on the transaction's size.
pub trait Transactions: Send + Sync {
    /// The next transaction, or statement outside of transactions. None: at the end.
    fn next_group(&mut self) -> Result<Option<Survey>>;

    /// Gives what a transaction has, from a place on and in order, until `take` returns false. Returns the
    /// place to go on from; None: there are no more rows.
    fn walk(&mut self, survey: &Survey, from: Walked, take: &mut Take<'_>) -> Result<Option<Walked>>;
}

/// Takes a part of a transaction and its number, and returns whether to go on.
pub type Take<'a> = dyn FnMut(u64, &Item<'_>) -> Result<bool> + 'a;

/// What a walk gives.
pub enum Item<'a> {
    Definition(&'a dyn Definition),
    /// The text of the statement whose rows follow.
    Query(&'a [u8]),
    Rows(LoggedRows<'a>),
}

/// How the images of the rows behind it are written that name its id.
pub trait Definition {
    fn id(&self) -> Result<u64>;

    /// Equal bytes are the same definition.
    fn bytes(&self) -> &[u8];

    /// Database and table.
    fn names(&self) -> Result<(&[u8], &[u8])>;

    /// How images are written, and the table, if the log says all of it. Then no other definition is needed.
    fn table(&self) -> Result<(TableMap, Option<TableSchema>)>;

    /// Where it is in the log.
    fn offset(&self) -> u64;
}

/// Rows that the log has together.
#[derive(Clone, Copy)]
pub struct LoggedRows<'a> {
    pub rows: RowsEvent<'a>,
    /// The bytes that places of values count from: the cursor of `rows` is over them.
    pub bytes: &'a [u8],
    /// That of this part of the transaction.
    pub number: u64,
    pub offset: u64,
    /// They were packed or rewritten, so that their bytes are at no place of the file.
    pub packed: bool,
    /// In the source's own log: the first byte, how many, and when and where the statement ran.
    pub position: u64,
    pub size: u32,
    pub timestamp: u32,
    pub server_id: u32,
    pub json: Style,
}
