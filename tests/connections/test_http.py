"""Connections to servers of sinks, against servers that close, hang and refuse."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.connections.answers import NoAnswer
from penstock.connections.http import HttpConnection
from penstock.connections.tcp import tls_context
from penstock.errors import ConfigError
from penstock.secret import Secret
from penstock.sinks import registry

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def server(*talks: Callable[[socket.socket], Any]) -> Iterator[str]:
    """Each talk is what the server does with one more connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        for talk in talks:
            connection, _ = listener.accept()
            with connection:
                talk(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(10)


def answer_once(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(OK)


def connected(url: str, timeout_s: float = 10) -> HttpConnection:
    return HttpConnection(url, dict, timeout_s=timeout_s)


def test_a_connection_that_the_server_has_closed_meanwhile_is_replaced() -> None:
    with server(answer_once, answer_once) as url:
        connection = connected(url)
        assert connection.request("GET", "/").body == b"ok"
        assert connection.request("POST", "/", b"again").body == b"ok"
        connection.close()


def test_a_server_that_closes_a_new_connection_without_an_answer_is_not_asked_again() -> None:
    with server(lambda connection: connection.recv(10)) as url, pytest.raises(NoAnswer):
        connected(url).request("GET", "/")


@pytest.mark.parametrize(
    ("url", "why"),
    [("http://127.0.0.1:1", "nothing listens there"), ("http://db.invalid", "host name cannot be resolved")],
)
def test_why_a_server_is_not_reached_is_told_in_words(url: str, why: str) -> None:
    with pytest.raises(NoAnswer, match=why):
        connected(url).request("GET", "/")


def test_an_answer_that_does_not_come_is_no_answer() -> None:
    ended = threading.Event()
    with server(lambda connection: ended.wait(10)) as url:
        with pytest.raises(NoAnswer, match="in time"):
            connected(url, timeout_s=0.2).request("GET", "/")
        ended.set()


def test_the_answer_of_a_server_that_does_not_want_the_whole_body_is_read() -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            """Until the client stops, so that no reset hides the answer."""

    with server(refuse) as url:
        found = connected(url).request("POST", "/", b"x" * 50_000_000)
        assert (found.status, found.body) == (413, b"")


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for file in (tmp_path / "missing.pem", Path(__file__)):
        with pytest.raises(ConfigError, match=r"cannot be read") as refused:
            tls_context(file)
        assert "sink.ca" in refused.value.hint


@pytest.mark.parametrize("name", ["opensearch", "clickhouse"])
def test_doctor_says_whether_the_server_answers_and_shows_no_password(name: str) -> None:
    kind = registry.kind(name)
    options = kind.options(type=name, url="http://127.0.0.1:1", user="u", password=Secret("hidden"))
    probe = kind.probe(options, {})
    assert probe is not None
    [found] = probe(None, [])  # type: ignore[arg-type]
    assert not found.ok and "sink.url" in found.message and "hidden" not in str(found)
