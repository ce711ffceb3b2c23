"""A connection of PyMySQL that takes whatever a server sends for an answer, or for a lost connection.

PyMySQL takes packets apart without a look at them, keeps a result whole however long it is, and limits the
time of a connection only until the server has accepted it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.constants import CR

from penstock.connections.answers import STRANGE

_RESULT_BYTES_MAX = 256 * 1024**2
"""Bytes of a result that is kept whole. Those with rows of targets are not."""
_STRANGE = (AssertionError, ValueError, LookupError, TypeError, AttributeError, NameError, OverflowError,
            MemoryError, struct.error)  # fmt: skip


_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in {
        "TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 90_000,
    }.items()
    if hasattr(socket, name)
}  # fmt: skip
"""A server whose machine is gone is noticed after a minute and a half."""


class MySqlConnection(pymysql.connections.Connection):
    """`connect_timeout` limits each answer until the login is done, too. All errors are PyMySQL's."""

    _read_timeout: float | None
    _sock: Any
    _left_bytes: float = float("inf")

    def connect(self, sock: Any = None) -> None:
        self._read_timeout, self._left_bytes = self.connect_timeout, _RESULT_BYTES_MAX
        with self._checked(otherwise=CR.CR_AUTH_PLUGIN_CANNOT_LOAD):
            super().connect(sock)
        for option, value in _KEEPALIVE.items():
            self._sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self._read_timeout = None

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._left_bytes = float("inf") if unbuffered else _RESULT_BYTES_MAX
        parent: Any = super()
        with self._checked(otherwise=CR.CR_MALFORMED_PACKET):
            return parent._read_query_result(unbuffered)

    def _read_bytes(self, num_bytes: int) -> Any:
        self._left_bytes -= num_bytes
        if self._left_bytes < 0:
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"more than {_RESULT_BYTES_MAX:,} bytes")
        parent: Any = super()
        return parent._read_bytes(num_bytes)

    @contextlib.contextmanager
    def _checked(self, *, otherwise: int) -> Iterator[None]:
        """`otherwise`: the code for what PyMySQL cannot do: here, a way to log in."""
        try:
            yield
        except (*_STRANGE, RuntimeError) as error:
            closing: Any = self
            closing._force_close()
            code = otherwise if isinstance(error, RuntimeError) else CR.CR_MALFORMED_PACKET
            raise pymysql.err.OperationalError(code, STRANGE) from None
