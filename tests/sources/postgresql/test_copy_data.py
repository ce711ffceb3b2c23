"""Rows of COPY: all of them, errors in the middle, and connections that end."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected

from penstock.sources.postgresql.copy_data import READ_BYTES, copied
from penstock.testing.servers.postgresql import PostgreSqlServer

ROWS = 200_000


def series(expression: str = "i") -> bytes:
    return f"COPY (SELECT {expression} FROM generate_series(1, {ROWS}) i) TO STDOUT".encode()


def test_all_rows_come_whatever_their_size(connection: psycopg.Connection[Any]) -> None:
    text = b"".join(copied(connection, series("i, repeat('x', CASE i % 50000 WHEN 0 THEN 3000000 END)")))
    lines = text.decode().splitlines()
    assert [int(line.split("\t")[0]) for line in lines] == list(range(1, ROWS + 1))
    assert [len(line.split("\t")[1]) for line in lines if not line.endswith("\\N")] == [3_000_000] * 4
    assert b"".join(copied(connection, b"COPY (SELECT 1 WHERE false) TO STDOUT")) == b""
    assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (b"COPY nothing TO STDOUT", psycopg.errors.UndefinedTable),
        (series(f"1 / ({ROWS} - i)"), psycopg.errors.DivisionByZero),
        (b"SELECT 1", psycopg.OperationalError),
    ],
)
def test_an_error_is_that_of_the_server_and_the_connection_can_go_on(
    connection: psycopg.Connection[Any], query: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        list(copied(connection, query))
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_rows_that_nobody_takes_are_cancelled(connection: psycopg.Connection[Any]) -> None:
    connection.execute("BEGIN")
    with closing(copied(connection, series("repeat('x', 1000)"))) as rows:
        assert READ_BYTES <= len(next(rows)) < ROWS * 1000 / 2
    connection.rollback()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_session_that_the_server_ends_is_an_error(server: PostgreSqlServer) -> None:
    with connected(server) as ended, connected(server) as other:
        rows = copied(ended, series("repeat('x', 1000)"))
        next(rows)
        other.execute("SELECT pg_terminate_backend(%s)", (ended.info.backend_pid,))
        with pytest.raises(psycopg.OperationalError):
            list(rows)


def test_a_connection_that_another_thread_closes_is_an_error(server: PostgreSqlServer) -> None:
    with connected(server) as sql:
        closing_it = threading.Timer(0.3, sql.pgconn.finish)
        closing_it.start()
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError):
            list(copied(sql, b"COPY (SELECT pg_sleep(60)) TO STDOUT"))
        assert time.monotonic() - began < 30
        closing_it.join()
