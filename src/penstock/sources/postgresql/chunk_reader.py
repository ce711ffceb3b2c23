"""Reads one chunk: a transaction, its view, and the rows.

`window.py` says what the view shows. It is part of that rule that the session says so after the transaction
has ended (`views.py`): what the view showed on a primary may be in memory only, and a crash would undo it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa

from penstock.errors import ChunkOutdated, ConfigError, InternalError
from penstock.model.chunk import Chunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.chunks import ReadResult, ViewChoice
from penstock.sources.postgresql.connection import connect, explain, explained, is_gone
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.postgresql.reading import BEGIN, Received, copy, current, lock
from penstock.sources.postgresql.views import ChunkViews, PrimaryViews, StandbyViews


class PostgreSqlChunkReader:
    """`sources.chunks.ChunkReader`. `publication`: says which columns and rows the log has. `primary`: the
    server is a standby of that one, whose log is followed."""

    def __init__(
        self,
        options: PostgreSqlOptions,
        publication: str,
        types: TypeOptions,
        *,
        primary: PostgreSqlOptions | None = None,
    ) -> None:
        self._options = options
        self._publication = publication
        self._types = types
        self._connection = connect(options)
        try:
            with explained(options):
                self._views: PrimaryViews | StandbyViews = (
                    PrimaryViews(self._connection)
                    if primary is None
                    else StandbyViews(self._connection, options, primary)
                )
        except BaseException:
            self._connection.close()
            raise

    def require(self, executed: str) -> None:
        with explained(self._options):
            self._views.require(executed)

    def read(self, schema: TableSchema, chunk: Chunk) -> PostgreSqlChunkRead:
        return PostgreSqlChunkRead(
            self._connection, self._options, self._publication, self._views, schema, chunk, self._types
        )

    def leave(self) -> None:
        self._views.close()
        self._connection.close()

    def close(self) -> None:
        """Closes the connection at once, even in the middle of an answer."""
        self._views.close()
        self._connection.pgconn.finish()


class PostgreSqlChunkRead:
    """`sources.chunks.ChunkRead`."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        options: PostgreSqlOptions,
        publication: str,
        views: ChunkViews,
        schema: TableSchema,
        chunk: Chunk,
        types: TypeOptions,
    ) -> None:
        self._connection, self._options, self._publication = connection, options, publication
        self._views, self._schema, self._chunk, self._types = views, schema, chunk, types
        self._result: ReadResult | None = None

    @property
    def result(self) -> ReadResult:
        if self._result is None:
            raise InternalError(f"The view of a chunk of {self._chunk.table} was asked for before its rows.")
        return self._result

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        connection, table = self._connection, self._schema.table
        received = Received()
        try:
            self._views.before()
            connection.execute(BEGIN)
            try:
                lock(connection, table)
                self._views.opened()
                now = current(connection, self._publication, self._schema, self._chunk)
                yield from copy(connection, now, self._chunk, self._types, received)
            finally:
                if connection.info.transaction_status != psycopg.pq.TransactionStatus.UNKNOWN:
                    connection.rollback()
            window = self._views.ended()
        except psycopg.Error as error:
            if is_gone(error):
                why = str(error).splitlines()[0]
                raise ChunkOutdated(
                    f"{table} changed while a chunk of it was read: {why}.", table=str(table)
                ) from None
            raise explain(error, self._options, table) from None
        self._result = ReadResult(window.watermarks, self._views.server, received.rows, received.bytes)


def refuse_view(view: ViewChoice | None) -> None:
    if view is not None:
        raise ConfigError("No table of PostgreSQL has to be read in one view: its log has all changes.")
