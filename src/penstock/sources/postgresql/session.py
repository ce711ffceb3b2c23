"""Asks the source for definitions, the end of its log, and bounds of chunks.

Questions are rare, so they share one connection under a lock. It is opened again after it was lost. There are
no writes at the source, and no locks but those that a SELECT takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import psycopg

from penstock.errors import ChunkOutdated, ConfigError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.offset import SourcePosition
from penstock.model.partial_snapshot import Part
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.catalog import Reason
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.postgresql.catalog import PgTable, read_tables
from penstock.sources.postgresql.connection import connect, explain, explained, is_gone
from penstock.sources.postgresql.log_position import moment
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.postgresql.split import chunks, estimated
from penstock.sources.postgresql.sql import LEXIS, key_literal, quoted
from penstock.sources.postgresql.views import require
from penstock.sources.table_filter import TableFilter

T = TypeVar("T")

CLOCK_MARGIN_US = 1_000_000
"""A commit has its time a moment before it is in the log. So the clock is read as if it were this much
earlier."""
_CLOCK = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8"


class PostgreSqlSession:
    """`sources.catalog.Catalog` and `sources.chunks.Chunks`."""

    fold_case = False
    reads_tables = True
    logs_cascades = True  # a foreign key's actions are statements of the server

    def __init__(self, options: PostgreSqlOptions, publication: str) -> None:
        self._options = options
        self._publication = publication
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def close_idle(self) -> None:
        """Nothing is kept open for chunks."""

    def ask(self, question: Callable[[psycopg.Connection[Any]], T]) -> T:
        with self._lock:
            for attempt in (1, 2):
                if self._connection is None:
                    self._connection = connect(self._options)
                try:
                    return question(self._connection)
                except psycopg.Error as error:
                    self.close()
                    known = explain(error, self._options)
                    if attempt == 2 or not isinstance(known, TransientError):
                        raise known from None
            raise AssertionError("unreachable")

    def end_position(self) -> SourcePosition:
        return lsn_position(self.ask(lambda connection: moment(connection).end))

    def clock_us(self) -> int:
        row = self.ask(lambda connection: connection.execute(_CLOCK).fetchone())
        assert row is not None
        return int(row[0]) - CLOCK_MARGIN_US

    def read_tables(self, captured: TableFilter) -> dict[TableId, TableSchema]:
        found = self.ask(lambda connection: read_tables(connection, self._publication))
        return {one.table: one.schema for one in found if one.table in captured}

    def read_table(self, table: TableId) -> TableSchema | None:
        found = self._named([table])
        return found[table].schema if table in found else None

    def _named(self, tables: Iterable[TableId]) -> dict[TableId, PgTable]:
        names = list(tables)
        found = self.ask(lambda connection: read_tables(connection, self._publication, names=names))
        return {one.table: one for one in found}

    def same_definition(self, one: TableSchema | None, other: TableSchema) -> bool:
        return one is not None and (one.columns, one.key) == (other.columns, other.key)

    def unfollowable(
        self, tables: Iterable[TableId], *, cascades: bool, reads: bool
    ) -> dict[TableId, Reason]:
        return {
            name: reason
            for name, one in self._named(tables).items()
            if (reason := why_not_followed(one, self._publication)) is not None
        }

    def cascade_reason(self, table: TableId) -> Reason:
        return f"Rows of {table} are changed by a foreign key.", ""

    def add_key(self, table: TableId) -> str:
        return f"ALTER TABLE {quoted(table)} ADD PRIMARY KEY (…)"

    def check_condition(self, schema: TableSchema, condition: str) -> None:
        LEXIS.check_plain(condition)
        query = f"EXPLAIN SELECT 1 FROM {quoted(schema.table)} WHERE ({condition})"
        with closing(connect(self._options)) as connection:
            try:
                connection.execute(query.encode())
            except psycopg.Error as error:
                known = explain(error, self._options)
                if isinstance(known, TransientError):
                    raise known from None
                raise ConfigError(
                    f"The source refuses the condition for {schema.table}: {known.message}"
                ) from None

    def key_literal(self, column: Column, value: Any) -> str:
        return key_literal(column, value)

    def find(
        self,
        schema: TableSchema,
        chunk_rows: int,
        executed: str,
        *,
        sized: Callable[[int], None],
        part: Part = ALL_ROWS,
        after: Chunk | None = None,
    ) -> Iterator[Chunk]:
        """See `Chunks.find`."""
        with closing(connect(self._options)) as connection:
            try:
                require(connection, executed)
                found = read_tables(connection, self._publication, names=[schema.table])
                if not found:
                    raise ChunkOutdated(f"{schema.table} is gone.", table=str(schema.table))
                size = estimated(connection, found[0])
                sized(size.rows)
                yield from chunks(connection, found[0], chunk_rows, size, part=part, after=after)
            except psycopg.Error as error:
                if is_gone(error):
                    raise ChunkOutdated(
                        f"{schema.table} changed while its chunks were sought.", table=str(schema.table)
                    ) from None
                with explained(self._options, schema.table):
                    raise


def why_not_followed(table: PgTable, publication: str) -> Reason | None:
    """Why rows of a table are not in the log, and what helps."""
    if not table.is_logged:
        what = "has partitions that are UNLOGGED or foreign tables" if table.leaves else "is UNLOGGED"
        return f"{table.table} {what}, so rows of it are not in the log.", "Set it LOGGED."
    if not table.published:
        add = f'ALTER PUBLICATION "{publication}" ADD TABLE {quoted(table.table)}'
        if any(leaf.is_limited for leaf in table.leaves):
            add = f'ALTER PUBLICATION "{publication}" SET (publish_via_partition_root = true)'
        what = "is not whole" if table.leaves else "is not"
        return (
            f"{table.table} {what} in the publication {publication}, so rows of it are not in the log.",
            add,
        )
    return None
