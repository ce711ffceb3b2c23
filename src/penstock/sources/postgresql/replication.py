"""A replication connection: the messages of the server's log, and what is confirmed of them
(https://www.postgresql.org/docs/current/protocol-replication.html).

libpq does the login, TLS and the frames. One thread uses a connection.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import pq

from penstock.errors import ConfigError, SourceError, TransientError
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.postgresql.connection import fields, refused
from penstock.sources.postgresql.log_position import lsn_of
from penstock.sources.postgresql.options import PostgreSqlOptions

EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from where the server counts."""
_DATA = struct.Struct("!cQQq")
"""Kind, first and last position, time: what is before a message of the log."""
_KEEPALIVE = struct.Struct("!cQqB")
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


@dataclass
class Batch:
    """Messages that came together: for each, its position in the log and its bytes. `end`: the server has
    sent everything up to there. `asked`: it wants an answer at once."""

    messages: list[tuple[int, bytes]]
    bytes: int = 0
    end: int = 0
    asked: bool = False


class Replication:
    """Raises `TransientError` if the server does not answer or ends the connection, and `ConfigError` for
    what the operator must mend."""

    def __init__(self, options: PostgreSqlOptions) -> None:
        self._connection = pq.PGconn.connect(_conninfo(options))
        if self._connection.status != pq.ConnStatus.OK:
            reason = _text(self._connection.error_message)
            self._connection.finish()
            raise refused(reason, None, options.address)
        self._socket = self._connection.socket
        self.address = f"{_text(self._connection.host)}:{_text(self._connection.port)}"
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
            return Slot(lsn_of(_text(result.get_value(0, 1))), _text(result.get_value(0, 2)))
        if _state(result) == _DUPLICATE_OBJECT:
            return None
        raise self._failed(result, f"the slot {name} cannot be created")

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

    def start(self, slot: str, publication: str, lsn: int, *, binary: bool) -> None:
        """Begins to send, from the first transaction on whose commit is behind `lsn`."""
        quoted = publication.replace('"', '""').replace("'", "''")
        options = f"proto_version '1', publication_names '\"{quoted}\"', messages 'true'"
        if binary:
            options += ", binary 'true'"
        command = f"START_REPLICATION SLOT {slot} LOGICAL {lsn_position(lsn)} ({options})"
        result = self._connection.exec_(command.encode())
        if result.status == pq.ExecStatus.COPY_BOTH:
            return
        if _state(result) == _OBJECT_IN_USE:
            raise TransientError(
                f"The replication slot {slot} of {self.address} is in use: {_text(result.error_message)}. Is "
                "there another receiver?"
            )
        raise self._failed(result, f"the log cannot be read by the slot {slot}")

    def take(self, seconds: float, bytes_max: int) -> Batch:
        """What has come, after waiting at most `seconds` for the first of it."""
        batch = Batch([])
        connection, deadline = self._connection, time.monotonic() + seconds
        while batch.bytes < bytes_max:
            length, data = connection.get_copy_data(1)
            if length > 0:
                self._sort(bytes(data), batch)
            elif length == 0:
                if batch.messages or batch.end or not self._wait(deadline - time.monotonic()):
                    break
                connection.consume_input()
            else:
                raise self._ended(length)
        return batch

    def confirm(self, durable: int) -> None:
        """Says that everything up to a position is durable here. The server may remove it from its log."""
        now = time.time_ns() // 1000 - EPOCH_US
        self._connection.put_copy_data(_STATUS.pack(b"r", durable, durable, durable, now, 0))
        while self._connection.flush():
            select.select([], [self._socket], [], 1.0)

    def _sort(self, data: bytes, batch: Batch) -> None:
        if data[:1] == b"w":
            _, start, _, _ = _DATA.unpack_from(data)
            batch.messages.append((start, data[_DATA.size :]))
            batch.bytes += len(data)
        elif data[:1] == b"k":
            _, end, _, asked = _KEEPALIVE.unpack_from(data)
            batch.end, batch.asked = max(batch.end, end), batch.asked or bool(asked)
        else:
            raise SourceError(f"{self.address} sends something else than its log.")

    def _wait(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], max(0.0, seconds))[0])

    def _ended(self, length: int) -> TransientError:
        reason = _text(self._connection.error_message)
        if length == -1:
            result = self._connection.get_result()
            reason = _text(result.error_message) if result is not None else "it has closed the connection"
        return TransientError(f"{self.address} sends its log no more: {reason}.")

    def _rows(self, command: bytes) -> list[tuple[str, ...]]:
        result = self._connection.exec_(command)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._failed(result, f"{command.decode()} fails")
        columns = range(result.nfields)
        return [tuple(_text(result.get_value(row, n)) for n in columns) for row in range(result.ntuples)]

    def _failed(self, result: pq.abc.PGresult, what: str) -> Exception:
        reason = _text(result.error_message)
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
    return _text(result.error_field(pq.DiagnosticField.SQLSTATE) or b"")


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace").strip().rstrip(".")
