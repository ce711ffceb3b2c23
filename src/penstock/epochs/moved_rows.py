"""Completes rows whose key an update has changed, and whose other values the log does not have.

PostgreSQL does not log a long value (TOAST) that an update leaves alone. It stood under the old key, in a row
that may be at the target, in a chunk, or in neither. So the row is read from the source by its new key, after
all that the epoch has. Its missing values are taken from there. They may be newer than the epoch: then a
later change in the log says so, and it has them.

If the source has no row of that key any more, a later change moves or deletes the row. Until then the
target does not need it, and it is left out. Later changes of it may lack columns, too, and find no row at
the target. So from then on, such a change is no error.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import ChunkOutdated, TableError
from penstock.model.change import DELETED, SEQUENCE, own_name
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import Column, TableSchema, TypeOptions
from penstock.sources.named_keys import InvalidKey, missing_keys, parse_value

KEYS_MAX = 1000
"""Keys of one SELECT."""
Present = Callable[[Sequence[KeyValues]], "list[pa.RecordBatch]"]
"""Reads the rows with some keys at the source, in layout `rows`."""


def completion(
    schema: TableSchema, moved: Sequence[pa.RecordBatch], types: TypeOptions, present: Present
) -> tuple[pa.RecordBatch | None, bool]:
    """What `_core.LatestReducer.complete` takes for moved rows (layout `latest`), and whether one of them is
    gone at the source. Raises `TableError` if they cannot be read by their keys."""
    rows = pa.Table.from_batches(moved) if moved else None
    if rows is None or not rows.num_rows:
        return None, False
    keys = _keys(schema, rows)
    found = list[pa.RecordBatch]()
    try:
        for first in range(0, len(keys), KEYS_MAX):
            found += present(keys[first : first + KEYS_MAX])
    except ChunkOutdated as error:
        raise _unread(schema, error.message) from None
    read = pa.Table.from_batches(found) if found else rows.slice(0, 0)
    gone = missing_keys(schema, keys, read.select(list(schema.key)), types)
    parts = [_completed(batch, rows.schema, deleted=False) for batch in found]
    parts.append(_completed(gone, rows.schema, deleted=True))
    whole = pa.Table.from_batches(parts, rows.schema).combine_chunks().to_batches()
    return whole[0], gone.num_rows > 0


def _completed(batch: pa.RecordBatch, fields: pa.Schema, *, deleted: bool) -> pa.RecordBatch:
    """Rows of layout `rows` in layout `latest`. They are older than all others."""
    own = {own_name(DELETED, fields.names): deleted, own_name(SEQUENCE, fields.names): 0}
    columns = list(batch.columns)
    for field in list(fields)[batch.num_columns :]:
        columns.append(pa.repeat(pa.scalar(own.get(field.name), field.type), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _keys(schema: TableSchema, rows: pa.Table) -> list[KeyValues]:
    columns = [schema.column(name) for name in schema.key]
    try:
        return [
            tuple(_named(column, value) for column, value in zip(columns, key, strict=True))
            for key in zip(*(rows.column(one.name).to_pylist() for one in columns), strict=True)
        ]
    except InvalidKey as error:
        raise _unread(schema, str(error).partition(":")[0]) from None


def _named(column: Column, value: Any) -> Any:
    """A value of a key as `sources.named_keys` takes it. Raises `InvalidKey` for types that it does not
    know."""
    if isinstance(value, Decimal):
        value = f"{value:f}"
    elif isinstance(value, datetime.datetime):
        value = value.replace(tzinfo=None).isoformat(" ")
    elif isinstance(value, datetime.date):
        value = value.isoformat()
    elif isinstance(value, bytes):
        value = "0x" + value.hex()
    parse_value(column, value)
    return value


def _unread(schema: TableSchema, why: str) -> TableError:
    return TableError(
        f"An update of {schema.table} changes the key of a row and lacks its other values, and the row could "
        f"not be read from the source by its key ({why}).",
        hint="Let the source log whole rows (in PostgreSQL: REPLICA IDENTITY FULL).",
        table=str(schema.table),
        definition_differs=True,
    )
