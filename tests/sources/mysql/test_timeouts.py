"""How long connections wait, through a network that misbehaves."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

from penstock.errors import ConfigError, LoginRefused, SourceUnreachable
from penstock.sources.mysql.connection import connect, hang_up, query
from penstock.sources.mysql.faults import explain
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.timeouts import interrupt
from penstock.testing.proxy import Proxy

CONNECT_MS = 700
READ_MS = 500
TOLERANCE_S = 5.0
"""For a busy machine."""


@pytest.fixture
def proxy(mysql_server: Any) -> Iterator[Proxy]:
    with Proxy(mysql_server.host, mysql_server.port) as proxy:
        yield proxy


@pytest.fixture
def source(mysql_server: Any, proxy: Proxy) -> Callable[..., MySqlOptions]:
    def make(**options: Any) -> MySqlOptions:
        told = {
            "port": proxy.port,
            "user": mysql_server.user,
            "password": mysql_server.password,
            "connect_timeout": CONNECT_MS,
            "read_timeout": READ_MS,
        }
        return MySqlOptions.model_validate(told | options)

    return make


def took(action: Callable[[], Any], error: type[BaseException], match: str) -> float:
    began = time.monotonic()
    with pytest.raises(error, match=match):
        action()
    return time.monotonic() - began


@pytest.mark.parametrize("tls", ["preferred", "disabled"])
@pytest.mark.parametrize("passed_bytes", [0, 20, 100, 700, 2000])
def test_a_server_that_stops_while_we_connect_is_given_up(
    proxy: Proxy, source: Callable[..., MySqlOptions], tls: str, passed_bytes: int
) -> None:
    """In the greeting, in TLS, in the login: wherever, it is one limit for all of it."""
    proxy.stall_after(bytes=passed_bytes)
    try:
        connection = connect(source(tls=tls))
    except SourceUnreachable as error:
        assert "within 0.7 s" in error.message and "source.connect_timeout (700 ms)" in error.hint
        return
    assert passed_bytes > 20, "the greeting alone is longer"
    connection._force_close()


def test_a_silent_server_takes_no_longer_than_the_limit(
    proxy: Proxy, source: Callable[..., MySqlOptions]
) -> None:
    proxy.stall()
    seconds = took(lambda: connect(source()), SourceUnreachable, "it did not greet within 0.7 s")
    assert 0.6 < seconds < 0.7 + TOLERANCE_S


def test_an_address_that_drops_packets_is_given_up(proxy: Proxy, source: Callable[..., MySqlOptions]) -> None:
    proxy.drop()
    seconds = took(lambda: connect(source()), SourceUnreachable, "did not accept the connection within")
    assert seconds < 0.7 + TOLERANCE_S


def test_errors_of_connecting_say_what_failed(proxy: Proxy, source: Callable[..., MySqlOptions]) -> None:
    proxy.refuse()
    took(lambda: connect(source()), SourceUnreachable, "it refuses connections, so nothing listens there")
    proxy.pass_on()
    took(lambda: connect(source(password="wrong")), LoginRefused, "refuses user 'root': Access denied")
    took(lambda: connect(source(host="nobody.invalid")), SourceUnreachable, "name 'nobody.invalid' cannot be")
    took(lambda: connect(source(tls="verify_ca")), ConfigError, "TLS with the source .* failed")


@pytest.mark.parametrize("network", ["stall", "drop"])
@pytest.mark.parametrize("tls", ["preferred", "disabled"])
def test_a_connection_that_goes_silent_is_given_up_in_the_middle_of_a_query(
    proxy: Proxy, source: Callable[..., MySqlOptions], network: str, tls: str
) -> None:
    connection = connect(source(tls=tls))
    assert query(connection, "SELECT 1") == [(1,)]
    getattr(proxy, network)()
    seconds = took(lambda: query(connection, "SELECT 2"), pymysql.OperationalError, "sent nothing for 0.5 s")
    assert seconds < (READ_MS + CONNECT_MS) / 1000 + TOLERANCE_S
    assert connection._sock is None, "what is given up is closed"
    proxy.pass_on()
    with connect(source(tls=tls)) as anew:
        assert query(anew, "SELECT 3") == [(3,)]


def test_a_connection_that_goes_silent_in_the_middle_of_rows_is_given_up(
    proxy: Proxy, source: Callable[..., MySqlOptions]
) -> None:
    """The server still holds the statement, but what it does is wait for the network."""
    connection = connect(source())
    proxy.stall_after(bytes=100_000)
    rows = (
        "SELECT REPEAT('x', 60000) FROM information_schema.COLUMNS a, information_schema.COLUMNS b LIMIT 900"
    )

    def ask() -> None:
        threading.Timer(0.3, lambda: passes_new_connections(proxy)).start()
        query(connection, rows)

    seconds = took(ask, pymysql.OperationalError, "sent nothing for 0.5 s and is not at work for us")
    assert seconds < 20
    connection._force_close()


def passes_new_connections(proxy: Proxy) -> None:
    """As a NAT that has forgotten the old ones."""
    proxy.drop()
    proxy.pass_on()


def test_a_slow_query_is_waited_for_as_long_as_the_server_works_on_it(
    source: Callable[..., MySqlOptions],
) -> None:
    with connect(source()) as connection:
        assert query(connection, "SELECT SLEEP(2.5)") == [(0,)]


def test_a_query_whose_answer_was_lost_is_not_waited_for(
    proxy: Proxy, source: Callable[..., MySqlOptions]
) -> None:
    connection = connect(source())
    passes_new_connections(proxy)
    took(lambda: query(connection, "SELECT 1"), pymysql.OperationalError, "is not at work for us")


def test_a_wait_ends_when_it_is_interrupted(source: Callable[..., MySqlOptions]) -> None:
    connection = connect(source())
    threading.Timer(0.3, lambda: interrupt("penstock is stopping")).start()
    seconds = took(lambda: query(connection, "SELECT SLEEP(60)"), pymysql.OperationalError, "is stopping")
    assert seconds < 0.3 + TOLERANCE_S


@pytest.mark.parametrize("network", ["stall", "drop"])
def test_connecting_ends_when_it_is_interrupted(
    proxy: Proxy, source: Callable[..., MySqlOptions], network: str
) -> None:
    getattr(proxy, network)()
    threading.Timer(0.5, lambda: interrupt("penstock is stopping")).start()
    seconds = took(lambda: connect(source(connect_timeout="60s")), SourceUnreachable, "is stopping")
    assert seconds < 0.5 + TOLERANCE_S


def test_a_server_that_reads_nothing_is_given_up(proxy: Proxy, source: Callable[..., MySqlOptions]) -> None:
    connection = connect(source())
    connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    proxy.stall()
    long = f"SELECT LENGTH('{'x' * 16_000_000}')"
    seconds = took(lambda: query(connection, long), pymysql.OperationalError, "timed out")
    assert seconds < READ_MS / 1000 + TOLERANCE_S


def test_taking_leave_of_a_silent_server_is_short(proxy: Proxy, source: Callable[..., MySqlOptions]) -> None:
    connection = connect(source())
    proxy.stall()
    began = time.monotonic()
    hang_up(connection)
    assert time.monotonic() - began < READ_MS / 1000 + TOLERANCE_S


def test_what_the_server_refuses_is_told_apart(source: Callable[..., MySqlOptions]) -> None:
    for code, kind, word in (
        (1130, LoginRefused, "refuses user"),
        (1129, LoginRefused, "refuses user"),
        (1040, Exception, "has no connection to spare"),
        (3159, ConfigError, "TLS with the source"),
        (1045, LoginRefused, "refuses user"),
    ):
        found = explain(pymysql.OperationalError(code, "text of the server"), source())
        assert isinstance(found, kind) and word in found.message and found.hint


def test_a_connection_over_tls_that_is_cut_is_lost_and_no_fault_of_tls(
    proxy: Proxy, source: Callable[..., MySqlOptions]
) -> None:
    connection = connect(source(tls="required"))
    proxy.cut()
    with pytest.raises(pymysql.OperationalError) as caught:
        query(connection, "SELECT 1")
    assert isinstance(explain(caught.value, source()), SourceUnreachable)
    assert isinstance(explain(ssl.SSLEOFError(8, "EOF occurred"), source()), SourceUnreachable)
