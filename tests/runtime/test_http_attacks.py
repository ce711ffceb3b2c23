"""HTTP of a pipeline, as hostile clients see it."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from pathlib import Path

import pytest
from tests.runtime.http_client import HOST, LOG, TOKEN, Client

from penstock.http import connections, pages
from penstock.runtime import http as served
from penstock.testing.scenario import wait_for


def status_of(connection: socket.socket) -> int:
    """What the answer's first line says; 0: the connection was closed without one."""
    line = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n" not in line and (piece := connection.recv(100)):
            line += piece
    return int(line.split()[1]) if line else 0


def test_a_body_that_is_announced_as_huge_is_refused_before_it_comes(client: Client) -> None:
    head = f"POST /signals HTTP/1.1\nHost: localhost\nAuthorization: Bearer {TOKEN}\nContent-Length: {10**12}"
    with client.say(head) as connection:
        assert status_of(connection) == 413
    with client.say(f"POST /signals HTTP/1.1\nHost: localhost\nContent-Length: {10**12}") as connection:
        assert status_of(connection) == 401
    status, answer = client.post(LOG | {"data": {"message": "x" * (1 << 20)}})
    assert status == 413 and set(answer) == {"message", "hint"}
    assert client.post(LOG)[0] == 202


def test_a_body_without_end_is_refused_once_it_is_too_long(client: Client) -> None:
    head = f"POST /signals HTTP/1.1\n{HOST}\nAuthorization: Bearer {TOKEN}\nTransfer-Encoding: chunked"
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with client.say(head) as connection:
        for _ in range(pages.BODY_BYTES_MAX // 65536):
            connection.sendall(piece)
        connection.sendall(piece)
        assert status_of(connection) == 413
    assert client.post(LOG)[0] == 202


@pytest.mark.parametrize(
    "head",
    ["nonsense", "GET /signals HTTP/1.1", f"GET /signals HTTP/9.9\n{HOST}", f"GET /\x00 HTTP/1.1\n{HOST}",
     f"POST /signals HTTP/1.1\n{HOST}\nContent-Length: -1", f"GET / HTTP/1.1\n{HOST}\nX: " + "x" * (4 << 20),
     f"POST /signals HTTP/1.1\n{HOST}\nContent-Length: 5\nTransfer-Encoding: chunked"],
)  # fmt: skip
def test_what_is_no_request_is_refused(head: str, client: Client) -> None:
    with client.say(head) as connection:
        assert status_of(connection) in (0, 400, 401)
    assert client.post(LOG)[0] == 202


def test_a_client_that_goes_away_leaves_nothing_behind(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    head = f"POST /signals HTTP/1.1\nHost: localhost\nAuthorization: Bearer {TOKEN}\nContent-Length: 500"
    for _ in range(20):
        with client.say(head) as connection:
            connection.sendall(b'{"id": "half", ')
    assert client.post(LOG)[0] == 202
    assert [one.id for one in client.state.signals()] == ["a"]
    assert "Traceback" not in caplog.text


def test_connections_that_say_nothing_are_closed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    with socket.create_connection(client.place, timeout=60) as connection:
        assert connection.recv(1) == b""
    head = f"POST /signals HTTP/1.1\nHost: localhost\nAuthorization: Bearer {TOKEN}\nContent-Length: 9"
    with client.say(head) as slow:
        assert status_of(slow) == 0
    monkeypatch.undo()
    assert client.post(LOG)[0] == 202


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connections_are_bounded_and_given_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 9000.0)  # time alone closes none
    before = descriptors()
    held: list[socket.socket] = []
    for _ in range(5 * served.CONNECTIONS_MAX):
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(client.place, timeout=60))
    ours = served.CONNECTIONS_MAX + 8  # those of the server; what it is just closing may stand for a moment
    wait_for(lambda: descriptors() <= before + len(held) + ours, "connections being closed")
    for one in held:
        one.close()

    def answers() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return client.post(LOG)[0] in (200, 202)
        return False

    wait_for(answers, "an answer after the others have gone")
    wait_for(lambda: descriptors() <= before + 8, "connections being given back")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_clients_that_ask_for_much_and_read_nothing_cost_bounded_memory(client: Client) -> None:
    for number in range(20):
        client.state.send(f"s{number}", "log", {"message": "x" * 100_000}, "command")
    before = resident_bytes()
    asks = f"GET /signals?limit=1000 HTTP/1.1\r\n{HOST}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            greedy = stack.enter_context(socket.create_connection(client.place, timeout=60))
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.sendall(asks * 100)  # two gigabytes of answers in all
        assert client.post(LOG)[0] == 202
        assert client.ask("GET", "/signals?limit=5")[0] == 200
        assert resident_bytes() - before < 200 * 1024**2
    wait_for(lambda: client.ask("GET", "/health", token=None)[0] == 503, "an answer afterwards")
