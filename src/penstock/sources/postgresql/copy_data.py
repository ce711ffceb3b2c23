"""What a server sends for a COPY, through libpq: many rows at once, where psycopg hands out one."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

READ_BYTES = 256 * 1024
"""Bytes that are taken from libpq at once."""
_LOOK_S = 0.2
"""Seconds after which a wait looks whether the connection is still there."""


def taken(server: pq.abc.PGconn) -> tuple[list[bytes], int]:
    """The pieces that have come, about `READ_BYTES` at most, and libpq's answer to the question for the next
    one: 0 if it has not come, -1 at the end, -2 after an error."""
    pieces, size = list[bytes](), 0
    while size < READ_BYTES:
        length, data = server.get_copy_data(1)
        if length <= 0:
            return pieces, length
        pieces.append(bytes(data))
        size += length
    return pieces, 1


def copied(connection: psycopg.Connection[Any], query: bytes) -> Generator[bytes, None, None]:
    """What a `COPY … TO STDOUT` gives, in pieces of any size. Raises psycopg's errors. If not all is taken,
    the COPY is cancelled."""
    server = connection.pgconn
    server.send_query(query)
    try:
        began = _result(server)
        if began is None or began.status != pq.ExecStatus.COPY_OUT:
            raise _failed(server, began)
        more, held, size = 0, list[bytes](), 0
        while more >= 0:
            pieces, more = taken(server)
            held += pieces
            size += sum(map(len, pieces))
            if size >= READ_BYTES or more < 0:
                yield b"".join(held)
                held, size = [], 0
            elif more == 0:
                _wait(server)
        ended = _result(server)
        if ended is None or ended.status != pq.ExecStatus.COMMAND_OK:
            raise _failed(server, ended)
    finally:
        _leave(server)


def _result(server: pq.abc.PGconn) -> pq.abc.PGresult | None:
    while server.is_busy():
        _wait(server)
    return server.get_result()


def _wait(server: pq.abc.PGconn) -> None:
    select.select([server.socket], [], [], _LOOK_S)
    server.consume_input()  # raises if another thread has closed the connection


def _failed(server: pq.abc.PGconn, result: pq.abc.PGresult | None) -> psycopg.Error:
    if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
        return error_from_result(result)
    return psycopg.OperationalError(server.get_error_message())


def _leave(server: pq.abc.PGconn) -> None:
    """Leaves the connection ready for the next command, if it still is one."""
    with contextlib.suppress(psycopg.Error, OSError, ValueError):
        if server.transaction_status == pq.TransactionStatus.ACTIVE:
            server.get_cancel().cancel()
        while (result := _result(server)) is not None:
            while result.status == pq.ExecStatus.COPY_OUT and taken(server)[1] >= 0:
                _wait(server)
