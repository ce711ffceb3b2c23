"""Chunk bounds: where a table is cut so that its parts can be read at once.

Coverage needs no trust in the bounds. One chunk has the rows with `key < b`, its neighbour those with `key >=
b`. The server compares both with the same literal, and the order of a key without NULLs is total. So bounds
are only a matter of speed.

The bound that is n rows on is found by the key's index, from the last bound on. So planning reads the index
once, in the order in which chunks are read, and reading can begin meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from penstock.model.chunk import Chunk
from penstock.model.partial_snapshot import Part
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.postgresql.catalog import PgTable
from penstock.sources.postgresql.sql import quote, range_condition, rows_of, text

CHUNK_BYTES = 64 * 1024**2
"""Intended bytes per chunk, by the server's estimates. Large rows make chunks of fewer rows."""
CHUNK_ROWS_MIN = 100
"""Rows of the smallest chunks, however large the rows are: each chunk costs a transaction and a file."""
CHUNK_KEYS = 500
"""Named keys per chunk. The statement that reads them stays short."""
_SIZE = """
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::int8, coalesce(sum(c.relpages::int8), 0)::int8
       * pg_catalog.current_setting('block_size')::int8
FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s)
"""


def estimated(connection: psycopg.Connection[Any], table: PgTable) -> tuple[int, int]:
    """Rows and bytes, by the server's statistics. Nothing is read; both may be 0."""
    numbers = [leaf for leaf, _ in table.leaves] or [table.number]
    row = connection.execute(_SIZE, (numbers,)).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def chunks(
    connection: psycopg.Connection[Any],
    table: PgTable,
    chunk_rows: int,
    size: tuple[int, int],
    *,
    part: Part = ALL_ROWS,
    after: Chunk | None = None,
) -> Iterator[Chunk]:
    """The table's chunks in key order, found as they are asked for; at least one. `after` goes on behind a
    chunk of an earlier run. A table without a key is one chunk."""
    if part.keys:
        yield from _keyed(table, part)
        return
    if after is not None and after.upper is None:
        return
    number, lower = (0, part.lower) if after is None else (after.number + 1, after.upper)
    rows, size_bytes = size
    if rows > 0 and size_bytes > 0:
        fitting = CHUNK_BYTES * rows // size_bytes
        chunk_rows = max(min(chunk_rows, fitting), min(chunk_rows, CHUNK_ROWS_MIN))
    while table.key:
        bound = _bound(connection, table, chunk_rows, lower, part.upper)
        if bound is None:
            break
        yield Chunk(table.table, number, lower, bound, condition=part.condition)
        number, lower = number + 1, bound
    yield Chunk(table.table, number, lower, part.upper, condition=part.condition)


def _bound(
    connection: psycopg.Connection[Any],
    table: PgTable,
    rows: int,
    lower: tuple[str, ...] | None,
    upper: tuple[str, ...] | None,
) -> tuple[str, ...] | None:
    """The key that is so many rows behind the lower bound. None: there are not so many."""
    shown = ", ".join(f"{quote(name)}::text" for name in table.key)
    order = ", ".join(map(quote, table.key))
    where = range_condition(table.key, lower, upper)
    query = f"SELECT {shown} FROM {rows_of(table)}" + (f" WHERE {where}" if where else "")
    row = connection.execute(f"{query} ORDER BY {order} LIMIT 1 OFFSET {rows}".encode()).fetchone()
    bound = None if row is None else tuple(text(value) for value in row)
    return None if bound == lower else bound


def _keyed(table: PgTable, part: Part) -> Iterator[Chunk]:
    keys = list(dict.fromkeys(part.keys))
    for number, start in enumerate(range(0, len(keys), CHUNK_KEYS)):
        some = tuple(keys[start : start + CHUNK_KEYS])
        yield Chunk(table.table, number, None, None, condition=part.condition, keys=some)
