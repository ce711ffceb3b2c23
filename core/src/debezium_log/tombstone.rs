//! What a message without a value says of its row.

use super::content::Content;
use super::message::{forms, hash_of_key, read_key, Change, Fields, Operation, Options, Schemas};
use super::order::Position;
use super::table::Table;
use super::value::Refused;

/// The deletion of the row with this key, of a table that is known. None: it has no such key.
pub fn deletion<'a>(
    key: Option<Content<'a>>,
    table: &Table,
    options: &Options,
    schemas: &mut Schemas,
) -> Result<Option<Change<'a>>, Refused> {
    let connector = table.origin.split('/').next().unwrap_or_default().to_owned();
    let parts = read_key(key, forms(options, &connector), schemas)?;
    let names: Vec<String> = parts.iter().map(|(field, _, _)| field.name.clone()).collect();
    if names.is_empty() || names != table.key {
        return Ok(None);
    }
    Ok(Some(Change {
        operation: Operation::Delete,
        database: table.database.clone(),
        table: table.table.clone(),
        origin: table.origin.clone(),
        connector,
        position: Position::default(),
        commit_ms: 0,
        snapshot: false,
        fields: Fields::default(),
        key: names,
        before: None,
        after: None,
        key_values: parts.into_iter().map(|(_, _, value)| value).collect(),
        hash: 0,
        key_hash: hash_of_key(key),
        described: false,
    }))
}
