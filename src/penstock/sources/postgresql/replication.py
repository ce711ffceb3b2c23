"""A replication connection: the messages of the server's log, and what is confirmed of them
(https://www.postgresql.org/docs/current/protocol-replication.html).

libpq does the login and TLS. One thread uses a connection.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from psycopg import pq

from penstock._core import PgArrivals, PgBatch
from penstock.errors import ConfigError, SourceError, TransientError
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.postgresql.connection import fields, refused
from penstock.sources.postgresql.copy_data import READ_BYTES
from penstock.sources.postgresql.log_position import lsn_of
from penstock.sources.postgresql.log_stream import (
    LogStream,
    ended,
    refusal_of,
    stream_of,
    text_of,
)
from penstock.sources.postgresql.options import PostgreSqlOptions

EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from where the server counts."""
READS_IN_A_ROW, READ_PAUSE_S = 4, 0.002
"""After so many reads that had not to wait, the server is busy. Then each waits so many seconds for more: to
read one row costs as much as to read a hundred."""
_BESIDE = (b"N", b"S", b"A", b"C", b"Z")
"""Notices, settings, and what follows the end of the log."""
_STATUS = struct.Struct("!cQQQqB")
_OBJECT_IN_USE, _UNDEFINED_OBJECT, _DUPLICATE_OBJECT = "55006", "42704", "42710"


class System(NamedTuple):
    """What a server says of itself (IDENTIFY_SYSTEM)."""

    id: str
    timeline: int
    flushed: int


class Slot(NamedTuple):
    """A new slot. `snapshot`: the name of a snapshot that shows exactly what is committed before its start.
    It can be imported until the connection gets another command."""

    start: int
    snapshot: str


class Replication:
    """Raises `TransientError` if the server does not answer or ends the connection, and `ConfigError` for
    what the operator must mend."""

    def __init__(self, options: PostgreSqlOptions) -> None:
        self._connection = pq.PGconn.connect(_conninfo(options))
        if self._connection.status != pq.ConnStatus.OK:
            reason = text_of(self._connection.error_message)
            self._connection.finish()
            raise refused(reason, None, options.address)
        self._socket = self._connection.socket
        self._stream: LogStream | None = None
        self._arrivals = PgArrivals()
        self._in_a_row = 0
        """Reads that had not to wait."""
        self.address = f"{text_of(self._connection.host)}:{text_of(self._connection.port)}"
        """Of the server that answers."""

    def close(self) -> None:
        self._connection.finish()

    def identify(self) -> System:
        [(id, timeline, flushed, *_)] = self._rows(b"IDENTIFY_SYSTEM")
        return System(id, int(timeline), lsn_of(flushed))

    def switched_at(self, timeline: int, now: int) -> int | None:
        """Where the log of a timeline ends that the timeline `now` goes on from. None: it does not."""
        if now < timeline:
            return None  # the first one has no history
        [(_, history)] = self._rows(f"TIMELINE_HISTORY {now}".encode())
        for line in history.splitlines():
            parts = line.split()
            if len(parts) >= 2 and parts[0] == str(timeline):
                return lsn_of(parts[1])
        return None

    def create_slot(
        self, name: str, *, failover: bool = False, waiting: Callable[[], None] = lambda: None
    ) -> Slot | None:
        """Creates a slot. None: there is one of this name. The server waits for the transactions that are
        running. Meanwhile `waiting` is called each second; it may raise. `failover`: the slot is copied to
        standbys (version 17 and newer)."""
        options = " (SNAPSHOT 'export', FAILOVER true)" if failover else " EXPORT_SNAPSHOT"
        command = f"CREATE_REPLICATION_SLOT {name} LOGICAL pgoutput{options}"
        result = self._answer(command, waiting)
        if result.status == pq.ExecStatus.TUPLES_OK:
            return Slot(lsn_of(text_of(result.get_value(0, 1))), text_of(result.get_value(0, 2)))
        if _state(result) == _DUPLICATE_OBJECT:
            return None
        raise self._failed(text_of(result.error_message), f"the slot {name} cannot be created")

    def _answer(self, command: str, waiting: Callable[[], None]) -> pq.abc.PGresult:
        connection = self._connection
        connection.send_query(command.encode())
        while connection.is_busy():
            if self._wait(1.0):
                connection.consume_input()
            else:
                waiting()
        result = connection.get_result()
        if result is None:
            raise TransientError(f"{self.address} gives no answer.")
        while connection.get_result() is not None:
            pass
        return result

    def start(self, slot: str, publication: str, lsn: int, *, binary: bool, streaming: bool = False) -> None:
        """Begins to send, from the first transaction on whose commit is behind `lsn`. `streaming`: large
        transactions are sent while they run."""
        quoted = publication.replace('"', '""').replace("'", "''")
        options = f"publication_names '\"{quoted}\"', messages 'true', "
        options += "proto_version '2', streaming 'on'" if streaming else "proto_version '1'"
        if binary:
            options += ", binary 'true'"
        command = f"START_REPLICATION SLOT {slot} LOGICAL {lsn_position(lsn)} ({options})"
        self._stream = stream_of(self._connection, self.address)
        refusal = self._stream.start(command.encode())
        if refusal is None:
            return
        if refusal.state == _OBJECT_IN_USE:
            raise TransientError(
                f"The replication slot {slot} of {self.address} is in use: {refusal.reason}. Is there "
                "another receiver?"
            )
        raise self._failed(refusal.reason, f"the log cannot be read by the slot {slot}")

    def take(self, seconds: float, bytes_max: int) -> PgBatch:
        """What has come, after waiting at most `seconds` for the first of it. After `start`."""
        assert self._stream is not None
        deadline = time.monotonic() + seconds
        self._in_a_row = self._in_a_row + 1 if self._wait(0) else 0
        if self._in_a_row > READS_IN_A_ROW:
            time.sleep(READ_PAUSE_S)
        while self._arrivals.is_empty or self._arrivals.size < bytes_max:
            data = self._stream.read()
            self._arrivals.feed(data)
            if len(data) >= READ_BYTES:
                self._in_a_row = 0  # there is more: no pause
            elif not self._arrivals.is_empty or not self._wait(deadline - time.monotonic()):
                break
        batch = self._arrivals.take()
        for kind, body in batch.others:
            self._check(bytes([kind]), body)
        return batch

    def confirm(self, durable: int) -> None:
        """Says that everything up to a position is durable here. The server may remove it from its log."""
        assert self._stream is not None
        now = time.time_ns() // 1000 - EPOCH_US
        self._stream.send(_STATUS.pack(b"r", durable, durable, durable, now, 0))

    def _check(self, kind: bytes, body: bytes) -> None:
        """Raises the error that a message of the protocol is, if it is one."""
        if kind == b"E":
            refusal = refusal_of(body)
            raise ended(self.address, refusal.reason, refusal.state)
        if kind == b"c":
            raise ended(self.address, "it has closed the connection")
        if kind not in _BESIDE:
            raise SourceError(f"{self.address} sends something else than its log.")

    def _wait(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], max(0.0, seconds))[0])

    def _rows(self, command: bytes) -> list[tuple[str, ...]]:
        result = self._connection.exec_(command)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._failed(text_of(result.error_message), f"{command.decode()} fails")
        columns = range(result.nfields)
        return [tuple(text_of(result.get_value(row, n)) for n in columns) for row in range(result.ntuples)]

    def _failed(self, reason: str, what: str) -> Exception:
        if self._connection.status != pq.ConnStatus.OK:
            return TransientError(f"{self.address}: {what}: {reason}.")
        return ConfigError(
            f"{self.address}: {what}: {reason}.", hint="`penstock doctor FILE` says what is missing."
        )


def _conninfo(options: PostgreSqlOptions) -> bytes:
    known = {**fields(options), "replication": "database"}
    parts = [f"{name}={_quoted(str(value))}" for name, value in known.items() if value is not None]
    return " ".join(parts).encode()


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _state(result: pq.abc.PGresult) -> str:
    return text_of(result.error_field(pq.DiagnosticField.SQLSTATE) or b"")
