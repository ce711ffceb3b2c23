"""Opens the view of a chunk, and says what it shows (`window.py`)."""

from __future__ import annotations

import time
from typing import Any, Protocol

import psycopg

from penstock._core import XidSet
from penstock.errors import InternalError, TransientError
from penstock.sources.postgresql.connection import connect, explained
from penstock.sources.postgresql.log_position import Moment, lsn_of, moment, server_name
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.sources.postgresql.replication import Replication
from penstock.sources.postgresql.window import PostgreSqlWindow

REQUIRE_S = 30.0
"""How long a chunk waits until the transactions are visible that the log had at the table's start."""
FLUSH_S = 30.0
"""How long a chunk waits until the server's log is durable up to its view."""
PAUSE_S = 0.01
"""Pause between two looks, in seconds. Nothing tells when a transaction becomes visible or durable."""
_SERVER = """
SELECT system_identifier::text,
       ('x' || substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int
FROM pg_catalog.pg_control_system()
"""
_FLUSHED = "SELECT pg_catalog.pg_current_wal_flush_lsn()::text"
_REPLAYED = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_last_wal_replay_lsn()::text"
_ENDED_BEFORE = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_catalog.pg_last_wal_replay_lsn()::text"
)


class ChunkViews(Protocol):
    """The views of one session, one after the other. For each: `before`, the transaction with `opened` in it,
    `ended`."""

    @property
    def server(self) -> str:
        """The server in whose log the views are."""

    def require(self, executed: str) -> None:
        """See `ChunkReader.require`."""

    def before(self) -> None:
        """Before the transaction."""

    def opened(self) -> None:
        """Opens the view: the transaction's first statement that needs one."""

    def ended(self) -> PostgreSqlWindow:
        """After the transaction. Raises `TransientError` if it must not count."""


class PrimaryViews:
    """`ChunkViews` on the server whose log is followed."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.server = server_of(connection)
        self._view: Moment | None = None

    def close(self) -> None:
        """There is no other connection."""

    def require(self, executed: str) -> None:
        require(self._connection, executed)

    def before(self) -> None:
        self._view = None

    def opened(self) -> None:
        self._view = moment(self._connection)

    def ended(self) -> PostgreSqlWindow:
        if self._view is None:
            raise InternalError("A view was ended before it was opened.")
        ensure_durable(self._connection, self._view)
        return PostgreSqlWindow(str(self._view.seen), self._view.end)


class StandbyViews:
    """`ChunkViews` on a standby of the server that is followed. A second connection asks that one for the end
    of its log, and a third asks the standby which log it replays: only replication connections say so."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        options: PostgreSqlOptions,
        primary: PostgreSqlOptions,
    ) -> None:
        self._connection, self._options, self._primary_options = connection, options, primary
        self._low = self._high = -1
        self._primary = connect(primary)
        try:
            with explained(primary):
                self.server = server_of(self._primary)
            self._replication = Replication(options)
        except BaseException:
            self._primary.close()
            raise

    def close(self) -> None:
        self._primary.close()
        self._replication.close()

    def require(self, executed: str) -> None:
        """Transactions that ended before all running ones are visible, and all that the primary has written
        up to now, once it is replayed."""
        wanted, deadline = XidSet(executed), time.monotonic() + REQUIRE_S
        end = self._primary_end()
        while True:
            row = self._connection.execute(_ENDED_BEFORE).fetchone()
            assert row is not None
            if lsn_of(row[1]) >= end or wanted.issubset(XidSet.of_snapshot(int(row[0]), [])):
                return
            if time.monotonic() > deadline:
                raise TransientError(
                    f"The standby {self._options.address} has not replayed what the log has. Does it lag, or "
                    "is its replay paused?"
                )
            time.sleep(PAUSE_S)

    def before(self) -> None:
        """A position that is asked for in the transaction could be behind what the view shows."""
        self._low = self._replayed()

    def opened(self) -> None:
        self._connection.execute("SELECT 1")
        self._high = self._primary_end()

    def ended(self) -> PostgreSqlWindow:
        self._replayed()
        now = self._replication.identify()
        if (name := server_name(now.id, now.timeline)) != self.server:
            raise TransientError(
                f"Chunks cannot be read from {self._options.address}: it has the log of {name}, and that of "
                f"{self.server} is followed."
            )
        return PostgreSqlWindow("", self._high, self._low)

    def _replayed(self) -> int:
        row = self._connection.execute(_REPLAYED).fetchone()
        assert row is not None
        if not row[0]:
            raise TransientError(
                f"Chunks cannot be read from {self._options.address}: it is no standby any more."
            )
        return lsn_of(row[1])

    def _primary_end(self) -> int:
        with explained(self._primary_options):
            return _flushed(self._primary)


def server_of(connection: psycopg.Connection[Any]) -> str:
    """The server in whose log the views are. On a standby the server refuses to say."""
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    return server_name(*row)


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
        if _flushed(connection) >= view.end:
            return
        if time.monotonic() > deadline:
            raise TransientError("The server's log is not durable up to what a chunk has shown.")
        time.sleep(PAUSE_S)


def _flushed(primary: psycopg.Connection[Any]) -> int:
    """Up to where its log is durable. No standby has more."""
    row = primary.execute(_FLUSHED).fetchone()
    assert row is not None
    return lsn_of(row[0])
