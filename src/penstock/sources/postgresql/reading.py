"""Reads rows of a table: in one transaction, in the server's binary form, decoded by the core.

The table is locked first (ACCESS SHARE, as each SELECT does), and only then the transaction's view is opened.
So nobody can write its rows again or empty it in between, which an earlier view would show as an empty table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from penstock import _core
from penstock.errors import ChunkOutdated, TableError
from penstock.model.chunk import Chunk
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.printable import argument
from penstock.sources.postgresql.catalog import TEXT, PgTable, read_tables
from penstock.sources.postgresql.copy_data import copied
from penstock.sources.postgresql.sql import files_of, quoted, select_rows

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_LOCK_WAIT = "SET LOCAL lock_timeout = '10s'"
"""A statement that changes the table may hold it for long. Then the read is tried again later."""


@dataclass
class Received:
    """Counts what a server sends."""

    rows: int = 0
    bytes: int = 0


def lock(connection: psycopg.Connection[Any], table: TableId) -> None:
    """As the first statement of a transaction. Raises psycopg's `UndefinedTable`."""
    connection.execute(_LOCK_WAIT)
    connection.execute(f"LOCK TABLE {quoted(table)} IN ACCESS SHARE MODE".encode())


def current(
    connection: psycopg.Connection[Any], publication: str, schema: TableSchema, chunk: Chunk
) -> PgTable:
    """The locked table. Raises `ChunkOutdated` if it has other columns than the schema, or if the chunk is of
    places in other files than it has now."""
    found = read_tables(connection, publication, names=[schema.table])
    now = found[0] if found else None
    if now is None or (now.schema.columns, now.key) != (schema.columns, schema.key):
        raise ChunkOutdated(
            f"{schema.table} changed while a chunk of it was read: it has another definition.",
            table=str(schema.table),
        )
    bound = chunk.lower or chunk.upper
    if not now.key and bound is not None and bound[1] != files_of(now):
        raise ChunkOutdated(
            f"{schema.table} has no key, and its rows were written to other files since its chunks were "
            "found (VACUUM FULL, CLUSTER).",
            table=str(schema.table),
        )
    return now


def copy(
    connection: psycopg.Connection[Any], table: PgTable, chunk: Chunk, types: TypeOptions, received: Received
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk. Raises `TableError` for a value that its column cannot have."""
    schema = table.schema
    kinds = [one.kind if one.reads_binary else str(TEXT) for one in table.columns]
    decoder = _core.PgCopyDecoder(schema.to_json(), kinds, types=types.to_json())
    query = f"COPY ({select_rows(table, chunk)}) TO STDOUT (FORMAT binary)"
    try:
        with closing(copied(connection, query.encode())) as answer:
            for data in answer:
                received.bytes += len(data)
                yield from decoder.feed(data)
        if (last := decoder.finish()) is not None:
            yield last
    except _core.SchemaMismatch as error:
        raise TableError(
            f"A row of {chunk.table} cannot be read: {error.reason}.",
            hint=f"Mend the value at the source, then run `penstock unpark FILE {argument(chunk.table)}`.",
            table=str(chunk.table),
        ) from error
    received.rows = decoder.rows
