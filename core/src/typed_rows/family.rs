//! The formats whose segments have these records.

use super::Definition;
use crate::error::{DecodeError, Result};
use crate::place::{Number, SourcePlace};
use crate::schema::{ColumnType, TableSchema};
use crate::transaction_set::TransactionSet;
use crate::wire::{form, WireType};

use super::series::SeriesSet;

/// What differs between them.
pub trait Family: Send + Sync + 'static {
    /// The format's name, which its segments and `relay.json` have.
    const NAME: &'static str;
    type Set: TransactionSet<Id: Sync> + Sync;
    type Place: SourcePlace + Sync;

    /// Whether the place of a commit is where the transaction ends in the source's log.
    const COMMITS_SAY_PLACES: bool;

    /// What is known of a definition's columns to read its rows in messages of the source (`MESSAGE`).
    type Columns: Send + Sync + 'static;
    /// Memory that is used again for each row.
    type Scratch: Default + Send + Sync;

    /// `schema`: the table as the definition has it.
    fn columns(definition: &Definition<'_>, schema: &TableSchema) -> Result<Self::Columns>;

    /// The form of a column's values in images.
    fn form(columns: &Self::Columns, index: usize, kind: &ColumnType) -> WireType;

    /// Writes the row of a message into `out` as the body of a record of rows. `offset`: of the message.
    fn write(
        columns: &Self::Columns,
        message: &[u8],
        offset: u64,
        scratch: &mut Self::Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()>;
}

/// Penstock's own, for sources that have no binary log of their own.
pub struct Own;

impl Family for Own {
    const NAME: &'static str = super::NAME;
    type Set = SeriesSet;
    type Place = Number;

    const COMMITS_SAY_PLACES: bool = false;

    type Columns = ();
    type Scratch = ();

    fn columns(_: &Definition<'_>, _: &TableSchema) -> Result<()> {
        Ok(())
    }

    fn form((): &(), _: usize, kind: &ColumnType) -> WireType {
        form(kind)
    }

    fn write((): &(), _: &[u8], offset: u64, (): &mut (), _: &mut Vec<u8>) -> Result<()> {
        Err(DecodeError::new("a message of a source that has none", offset))
    }
}
