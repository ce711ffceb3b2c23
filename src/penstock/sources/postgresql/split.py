"""Chunk bounds: where a table is cut so that its parts can be read at once.

Coverage needs no trust in the bounds. One chunk has the rows with `key < b`, its neighbour those with `key >=
b`. The server compares both with the same literal, and the order of a key without NULLs is total. So bounds
are only a matter of speed.

The bound that is n rows on is found by the key's index, from the last bound on. So planning reads the index
once, in the order in which chunks are read, and reading can begin meanwhile.

**A table without a key** is cut by where its rows are: ranges of blocks (`ctid`). Each chunk has a view of
its own, and an UPDATE may move a row to a range whose chunk was read before, or is read later. No row is lost
by that: a version of a row that no chunk has shown was written after the table's start, so the log has it,
whole. (The server takes UPDATE of such a table only with REPLICA IDENTITY FULL.) But a row may be shown
twice. Such tables have only targets that keep changes, in which rows of that time may appear twice anyway.
What moves rows without an event, such as VACUUM FULL, gives the table other files. The bounds name them, and
a chunk of other files is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from penstock.model.chunk import Chunk
from penstock.model.partial_snapshot import Part
from penstock.sources.chunk_bounds import CHUNK_BYTES, Bound, TableSize, join_bounds, keyed_chunks
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.postgresql.catalog import PgTable
from penstock.sources.postgresql.sql import files_of, quote, range_condition, rows_of, text

_SIZE = """
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::int8, coalesce(sum(c.relpages::int8), 0)::int8
       * pg_catalog.current_setting('block_size')::int8
FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s)
"""
_BLOCKS = """
SELECT coalesce(max(pg_catalog.pg_relation_size(c.oid)), 0)::int8
       / pg_catalog.current_setting('block_size')::int8, pg_catalog.current_setting('block_size')::int8
FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s)
"""
"""Of the table, or of its largest partition."""


def estimated(connection: psycopg.Connection[Any], table: PgTable) -> TableSize:
    """The size by the server's statistics. Nothing is read; both numbers may be 0."""
    numbers = [one.number for one in table.leaves] or [table.number]
    row = connection.execute(_SIZE, (numbers,)).fetchone()
    assert row is not None
    rows, size_bytes = int(row[0]), int(row[1])
    return TableSize(rows, size_bytes // rows if rows else 0)


def chunks(
    connection: psycopg.Connection[Any],
    table: PgTable,
    chunk_rows: int,
    size: TableSize,
    *,
    part: Part = ALL_ROWS,
    after: Chunk | None = None,
) -> Iterator[Chunk]:
    """The table's chunks in key order, found as they are asked for; at least one. `after` goes on behind a
    chunk of an earlier run."""
    if part.keys:
        return keyed_chunks(table.table, part)
    if after is not None and after.upper is None:
        return iter(())
    lower = part.lower if after is None else after.upper
    if table.key:
        bounds = _bounds(connection, table, size.chunk_rows(chunk_rows), lower, part.upper)
    else:
        bounds = _block_bounds(connection, table, chunk_rows, size, lower)
    return join_bounds(table.table, bounds, after=after, part=part)


def _bounds(
    connection: psycopg.Connection[Any], table: PgTable, rows: int, lower: Bound | None, upper: Bound | None
) -> Iterator[Bound]:
    while (bound := _bound(connection, table, rows, lower, upper)) is not None:
        yield bound
        lower = bound


def _block_bounds(
    connection: psycopg.Connection[Any],
    table: PgTable,
    chunk_rows: int,
    size: TableSize,
    lower: Bound | None,
) -> Iterator[Bound]:
    """Each is the literal of a row's place, and the files that it is a place in."""
    numbers = [one.number for one in table.leaves] or [table.number]
    row = connection.execute(_BLOCKS, (numbers,)).fetchone()
    assert row is not None
    largest, block_bytes = row
    blocks = CHUNK_BYTES // block_bytes
    if size.rows:
        blocks = min(blocks, size.chunk_rows(chunk_rows) * largest // size.rows)
    blocks = max(1, blocks)
    first = 0 if lower is None else int(lower[0].strip("'(").partition(",")[0])
    files = files_of(table) if lower is None else lower[1]
    for block in range(first + blocks, largest, blocks):
        yield f"'({block},0)'", files


def _bound(
    connection: psycopg.Connection[Any],
    table: PgTable,
    rows: int,
    lower: Bound | None,
    upper: Bound | None,
) -> Bound | None:
    """The key that is so many rows behind the lower bound. None: there are not so many."""
    shown = ", ".join(f"{quote(name)}::text" for name in table.key)
    order = ", ".join(map(quote, table.key))
    where = range_condition(table.key, lower, upper)
    # In one SELECT, ORDER BY would mean the texts, which have the names of the columns.
    query = f"SELECT {order} FROM {rows_of(table)}" + (f" WHERE {where}" if where else "")
    query = f"SELECT {shown} FROM ({query} ORDER BY {order} LIMIT 1 OFFSET {rows}) AS found"
    row = connection.execute(query.encode()).fetchone()
    bound = None if row is None else tuple(text(value) for value in row)
    return None if bound == lower else bound
