"""The bytes of a replication connection whose log is sent, in the frames of the protocol
(https://www.postgresql.org/docs/current/protocol-message-formats.html).

The server sends a message for each row. libpq hands them out one at a time, which costs more than everything
else that a receiver does. So a connection that is not encrypted is read from its socket, as much as has come.
With TLS it is libpq that can read it.
"""

from __future__ import annotations

import os
import select
import struct
from typing import NamedTuple, Protocol

from psycopg import NotSupportedError, pq

from penstock.errors import TransientError
from penstock.sources.postgresql.copy_data import READ_BYTES, taken

_FRAME = struct.Struct("!cI")
"""What is before a message: its kind, and its length without the kind."""
_ANSWER_BYTES_MAX = 256 * 1024
"""Bytes of a message with which a server answers a command: an error, a notice."""
_SEND_WAIT_S = 1.0
"""Seconds between two looks at a socket that takes nothing."""


class Refusal(NamedTuple):
    """Why the server does not send its log: SQLSTATE and text."""

    state: str
    reason: str


class LogStream(Protocol):
    def start(self, command: bytes) -> Refusal | None:
        """Sends START_REPLICATION and waits for the answer. To be called first."""

    def read(self) -> bytes:
        """What has come, empty if nothing has. It may end within a message. Raises `TransientError` if the
        server has ended the connection."""

    def send(self, content: bytes) -> None:
        """Sends a message to the process that sends the log."""


def stream_of(connection: pq.abc.PGconn, where: str) -> LogStream:
    """`where`: the server's address, for errors."""
    try:
        is_plain = not (connection.ssl_in_use or connection.used_gssapi)
    except NotSupportedError:  # an old libpq does not know
        is_plain = False
    return PlainStream(connection, where) if is_plain else LibpqStream(connection, where)


class PlainStream:
    """`LogStream` of a connection that is not encrypted. libpq only sends the command: it would read what
    comes behind the answer, too."""

    def __init__(self, connection: pq.abc.PGconn, where: str) -> None:
        self._connection, self._where = connection, where
        self._socket = connection.socket  # libpq has made it non-blocking
        self._ahead = b""

    def start(self, command: bytes) -> Refusal | None:
        self._connection.send_query(command)
        came = b""
        while True:
            select.select([self._socket], [], [])
            came += self.read()
            while len(came) >= _FRAME.size:
                kind, length = _FRAME.unpack_from(came)
                if not _FRAME.size <= length + 1 <= _ANSWER_BYTES_MAX:
                    raise ended(self._where, f"its answer is none of this protocol ({length} bytes)")
                body, rest = came[_FRAME.size : length + 1], came[length + 1 :]
                if len(came) <= length:
                    break
                came = rest
                if kind == b"W":
                    self._ahead = came
                    return None
                if kind == b"E":
                    return refusal_of(body)

    def read(self) -> bytes:
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        try:
            data = os.read(self._socket, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise ended(self._where, str(error)) from None
        if not data:
            raise ended(self._where, "it has closed the connection")
        return data

    def send(self, content: bytes) -> None:
        data = memoryview(_FRAME.pack(b"d", len(content) + 4) + content)
        while data:
            try:
                data = data[os.write(self._socket, data) :]
            except BlockingIOError:
                select.select([], [self._socket], [], _SEND_WAIT_S)
            except OSError as error:
                raise ended(self._where, str(error)) from None


class LibpqStream:
    """`LogStream` of any connection."""

    def __init__(self, connection: pq.abc.PGconn, where: str) -> None:
        self._connection, self._where = connection, where
        self._end = 0

    def start(self, command: bytes) -> Refusal | None:
        result = self._connection.exec_(command)
        if result.status == pq.ExecStatus.COPY_BOTH:
            return None
        state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        return Refusal(state.decode(), text_of(result.error_message))

    def read(self) -> bytes:
        pieces, more = ([], self._end) if self._end < 0 else taken(self._connection)
        if not pieces and more == 0 and self._has_come():
            pieces, more = taken(self._connection)
        if not pieces and more < 0:
            raise self._ended(more)
        self._end = min(more, 0)
        return b"".join(part for data in pieces for part in (_FRAME.pack(b"d", len(data) + 4), data))

    def send(self, content: bytes) -> None:
        self._connection.put_copy_data(content)
        while self._connection.flush():
            select.select([], [self._connection.socket], [], _SEND_WAIT_S)

    def _has_come(self) -> bool:
        """Gives libpq what has come."""
        if not select.select([self._connection.socket], [], [], 0)[0]:
            return False
        self._connection.consume_input()
        return True

    def _ended(self, length: int) -> TransientError:
        reason = text_of(self._connection.error_message)
        state = b""
        if length == -1:
            result = self._connection.get_result()
            reason = text_of(result.error_message) if result is not None else "it has closed the connection"
            state = (result and result.error_field(pq.DiagnosticField.SQLSTATE)) or b""
        return ended(self._where, reason, state.decode())


def ended(where: str, reason: str, state: str = "") -> TransientError:
    """`state`: SQLSTATE of the server's error, as far as there is one."""
    return TransientError(f"{where} sends its log no more: {reason}.", state=state)


def refusal_of(body: bytes) -> Refusal:
    """`body`: of the protocol's ErrorResponse."""
    fields = {field[:1]: text_of(field[1:]) for field in body.split(b"\0") if field}
    return Refusal(fields.get(b"C", ""), fields.get(b"M", "it does not say why"))


def text_of(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace").strip().rstrip(".")
