"""Reads one chunk: a transaction, its view, and the rows.

`window.py` says why the view is known exactly. It is part of that rule that the session ends with a look at
how far the log is durable: what the view showed may be in memory only, and a crash would undo it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa

from penstock._core import XidSet
from penstock.errors import ChunkOutdated, ConfigError, InternalError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.chunks import ReadResult, ViewChoice
from penstock.sources.postgresql.connection import connect, explain, is_gone
from penstock.sources.postgresql.log_position import Moment, lsn_of, moment
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.postgresql.reading import BEGIN, Received, copy, current, lock
from penstock.sources.postgresql.window import PostgreSqlWindow

REQUIRE_S = 30.0
"""How long a chunk waits until the transactions are visible that the log had at the table's start."""
FLUSH_S = 30.0
"""How long a chunk waits until the server's log is durable up to its view."""
PAUSE_S = 0.01
"""Pause between two looks, in seconds. Nothing tells when a transaction becomes visible or durable."""
_SYSTEM = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"
_FLUSHED = "SELECT pg_catalog.pg_current_wal_flush_lsn()::text"


class PostgreSqlChunkReader:
    """`sources.chunks.ChunkReader`. `publication`: says which columns and rows the log has."""

    def __init__(self, options: PostgreSqlOptions, publication: str, types: TypeOptions) -> None:
        self._options = options
        self._publication = publication
        self._types = types
        self._connection = connect(options)
        try:
            self._server = server_of(self._connection)
        except psycopg.Error as error:
            self._connection.close()
            raise explain(error, options) from None

    def require(self, executed: str) -> None:
        try:
            require(self._connection, executed)
        except psycopg.Error as error:
            raise explain(error, self._options) from None

    def read(self, schema: TableSchema, chunk: Chunk) -> PostgreSqlChunkRead:
        return PostgreSqlChunkRead(
            self._connection, self._options, self._publication, self._server, schema, chunk, self._types
        )

    def leave(self) -> None:
        self._connection.close()

    def close(self) -> None:
        """Closes the connection at once, even in the middle of an answer."""
        self._connection.pgconn.finish()


class PostgreSqlChunkRead:
    """`sources.chunks.ChunkRead`."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        options: PostgreSqlOptions,
        publication: str,
        server: str,
        schema: TableSchema,
        chunk: Chunk,
        types: TypeOptions,
    ) -> None:
        self._connection, self._options, self._publication = connection, options, publication
        self._server, self._schema, self._chunk, self._types = server, schema, chunk, types
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
            connection.execute(BEGIN)
            try:
                lock(connection, table)
                view = moment(connection)
                now = current(connection, self._publication, self._schema)
                yield from copy(connection, now, self._chunk, self._types, received)
            finally:
                if connection.info.transaction_status != psycopg.pq.TransactionStatus.UNKNOWN:
                    connection.rollback()
            ensure_durable(connection, view)
        except psycopg.Error as error:
            if is_gone(error):
                why = str(error).splitlines()[0]
                raise ChunkOutdated(
                    f"{table} changed while a chunk of it was read: {why}.", table=str(table)
                ) from None
            raise explain(error, self._options, table) from None
        window = PostgreSqlWindow(str(view.seen), view.end)
        self._result = ReadResult(window.watermarks, self._server, received.rows, received.bytes)


def server_of(connection: psycopg.Connection[Any]) -> str:
    """The server in whose log the views are."""
    row = connection.execute(_SYSTEM).fetchone()
    assert row is not None
    return str(row[0])


def require(connection: psycopg.Connection[Any], executed: str) -> None:
    """Waits until all these transactions are visible. Each is in the log. Its commit becomes visible soon
    after, unless it waits for a standby (`synchronous_standby_names`)."""
    wanted, deadline = XidSet(executed), time.monotonic() + REQUIRE_S
    while not wanted.issubset(moment(connection).seen):
        if time.monotonic() > deadline:
            raise TransientError(
                "Transactions that the log has are not visible yet. Do they wait for a standby "
                "(synchronous_standby_names)?"
            )
        time.sleep(PAUSE_S)  # nothing tells when they are


def ensure_durable(connection: psycopg.Connection[Any], view: Moment) -> None:
    """Waits until the server's log is durable up to a view. Raises `TransientError` if that takes long."""
    deadline = time.monotonic() + FLUSH_S
    while True:
        row = connection.execute(_FLUSHED).fetchone()
        assert row is not None
        if lsn_of(row[0]) >= view.end:
            return
        if time.monotonic() > deadline:
            raise TransientError("The server's log is not durable up to what a chunk has shown.")
        time.sleep(PAUSE_S)


def refuse_view(view: ViewChoice | None) -> None:
    if view is not None:
        raise ConfigError("No table of PostgreSQL has to be read in one view: its log has all changes.")
