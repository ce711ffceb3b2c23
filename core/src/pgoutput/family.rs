//! The segment format `pgoutput`: records as in the format `rows`, with rows as the server has sent them.

use serde::Deserialize;

use super::tuple::{Columns, Scratch};
use super::types::PgType;
use super::value::Target;
use super::xids::XidSet;
use crate::error::{DecodeError, Result};
use crate::place::SourcePlace;
use crate::schema::{ColumnType, TableSchema};
use crate::typed_rows::{Definition, Family, Records};
use crate::wire::WireType;

/// See the module.
pub struct Messages;

pub type Pgoutput = Records<Messages>;

pub const NAME: &str = "pgoutput";

/// A position in the server's log, which is one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lsn(pub u64);

impl SourcePlace for Lsn {
    fn is_before(&self, other: &Self) -> bool {
        self.0 < other.0
    }

    fn fields(&self) -> String {
        format!("\"lsn\":{}", self.0)
    }
}

impl From<(String, u64)> for Lsn {
    fn from((_, lsn): (String, u64)) -> Self {
        Self(lsn)
    }
}

impl From<Lsn> for (String, u64) {
    fn from(Lsn(lsn): Lsn) -> Self {
        (String::new(), lsn)
    }
}

/// What a definition says of the columns beside what every table has.
#[derive(Deserialize)]
struct Said {
    columns: Vec<SaidOfColumn>,
}

#[derive(Deserialize)]
struct SaidOfColumn {
    /// The type of the values (`PgType::of_json`), of a domain that of its base.
    pg_type: serde_json::Value,
    #[serde(default)]
    identity: bool,
    /// Its place in the messages. None: as in the definition.
    #[serde(default)]
    sent: Option<usize>,
}

impl Family for Messages {
    const NAME: &'static str = NAME;
    type Set = XidSet;
    type Place = Lsn;

    const COMMITS_SAY_PLACES: bool = true;

    type Columns = Columns;
    type Scratch = Scratch;

    fn columns(definition: &Definition<'_>, schema: &TableSchema) -> Result<Columns> {
        let fail = |reason: String| DecodeError::of_table(schema.name(), reason, definition.offset());
        let said: Said =
            serde_json::from_slice(definition.json()).map_err(|error| fail(error.to_string()))?;
        let targets = schema.columns.iter().zip(&said.columns).map(|(column, said)| {
            let column = column.column_type().map_err(fail)?;
            Ok(Target::new(PgType::of_json(&said.pg_type), column))
        });
        let order: Option<Vec<usize>> = said.columns.iter().map(|column| column.sent).collect();
        Ok(Columns::new(
            definition.id as u32,
            schema.name(),
            schema.columns.iter().map(|column| column.name.clone()).collect(),
            &said.columns.iter().map(|column| column.identity).collect::<Vec<_>>(),
            targets.collect::<Result<_>>()?,
            order.filter(|order| !order.is_empty()),
        ))
    }

    fn form(columns: &Columns, index: usize, _: &ColumnType) -> WireType {
        columns.form(index)
    }

    fn write(
        columns: &Columns,
        message: &[u8],
        offset: u64,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        columns.write(message, scratch, offset, out)
    }
}
