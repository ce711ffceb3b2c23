"""Secrets cannot be guessed, whichever listener is asked, and pages of strangers get nothing."""

from __future__ import annotations

import http.client
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.serve.listeners.test_attacks import WEBSOCKET, opened
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import Serving, serving

from penstock.client import connect
from penstock.errors import ConfigError
from penstock.testing.servers import MySqlServer

RIGHT, WRONG = "0123456789abcdef", "0123456789abcdeg"
ATTEMPTS_MAX = 5
_NUMBERS = itertools.count(2)
"""Of addresses of this machine, so that each test has one of its own: failures are counted by address."""


@pytest.fixture(scope="module")
def served(source: MySqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    options: dict[str, Any] = {
        "listen": dict.fromkeys(("canal", "grpc"), "127.0.0.1:0"),
        "http": {"listen": "127.0.0.1:0", "hosts": ["pen.example"]},
        "users": {"reader": {"password": RIGHT}},
        "tokens": {"all": {"token": RIGHT, "role": "operator"}},
        "failed_logins_per_minute_max": ATTEMPTS_MAX,
    }
    with serving(source, tmp_path_factory.mktemp("credentials"), **options) as made:
        yield made


def ask(
    served: Serving, method: str, path: str, origin: str = "127.0.0.1", **headers: str
) -> tuple[int, str, str | None]:
    """Status, text, and the header Retry-After."""
    connection = http.client.HTTPConnection(served.listening["http"], timeout=20, source_address=(origin, 0))
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(200).decode(), answer.headers.get("Retry-After")


def http_way(method: str, path: str, scheme: str = "Bearer") -> Callable[[Serving, str, str], str]:
    def attempt(served: Serving, origin: str, secret: str) -> str:
        status, text, retry = ask(served, method, path, origin, Authorization=f"{scheme} {secret}")
        assert (status == 429) == (retry is not None)
        return "accepted" if status == 200 else text

    return attempt


def by_websocket(served: Serving, origin: str, secret: str) -> str:
    [_, *lines, _, _] = WEBSOCKET.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    headers["Sec-WebSocket-Protocol"] = f"token.{secret}"
    status, text, _ = ask(served, "GET", "/destinations/none/events", origin, **headers)
    return "accepted" if status == 404 else text


def by_canal(served: Serving, origin: str, secret: str) -> str:
    try:
        with RawClient(served.address, login=False, origin=origin) as client:
            client.log_in("reader", secret.encode())
    except Failed as error:
        return str(error)
    return "accepted"


WAYS: dict[str, Callable[[Serving, str, str], str]] = {
    "operator, states": http_way("GET", "/states"),
    "operator, logs": http_way("GET", "/logs"),
    "operator, start": http_way("POST", "/destinations/example/start"),
    "token": http_way("GET", "/destinations"),
    "token by websocket": by_websocket,
    "user of Canal": by_canal,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_address_has_few_attempts_at_any_secret(served: Serving, way: str) -> None:
    attempt, origin = WAYS[way], f"127.0.0.{next(_NUMBERS)}"
    assert attempt(served, origin, RIGHT) == "accepted"
    for _ in range(ATTEMPTS_MAX):
        assert "too many" not in attempt(served, origin, WRONG) != "accepted"
    for secret in (WRONG, RIGHT):
        for one in WAYS.values():  # they are counted together
            assert "too many failed logins from this address" in one(served, origin, secret)
    assert attempt(served, f"127.0.0.{next(_NUMBERS)}", RIGHT) == "accepted"


def test_attempts_at_secrets_by_flight_are_counted_too(served: Serving) -> None:
    address = served.listening["grpc"]
    secrets: list[dict[str, Any]] = [{"token": RIGHT}, {"user": "reader", "password": RIGHT}]
    for secret in secrets:
        with connect(address, **secret) as client:
            assert "example" in client.destinations()
    for number in range(ATTEMPTS_MAX):
        secret = {"token": WRONG} if number % 2 else {"user": "reader", "password": WRONG}
        with connect(address, **secret) as client, pytest.raises(ConfigError, match=r"file|auth failed"):
            client.destinations()
    for secret in [*secrets, {"token": WRONG}]:
        with connect(address, **secret) as client, pytest.raises(ConfigError, match="too many failed"):
            client.destinations()


ROUTES = ["GET /health", "GET /destinations", "GET /destinations/example", "GET /destinations/example/events"]
ROUTES += ["GET /states", "GET /logs", "POST /destinations/example/stop", "GET /nothing", "POST /nothing"]


@pytest.fixture(scope="module")
def unprotected(source: MySqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    http = {"listen": "127.0.0.1:0", "hosts": ["pen.example"]}
    with serving(
        source, tmp_path_factory.mktemp("hosts"), listen={"canal": "127.0.0.1:0"}, http=http
    ) as made:
        yield made


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_of_a_stranger_gets_nothing(unprotected: Serving, route: str) -> None:
    """By DNS rebinding, or from its own server."""
    method, path = route.split()
    port = unprotected.listening["http"].rpartition(":")[2]
    token = {"Authorization": f"Bearer {RIGHT}"}
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "A" * 22 + "==",
    }
    for more in ({}, upgrade):
        for host in ("evil.example", f"evil.example:{port}", "192.0.2.1"):
            for origin in ({}, {"Origin": f"http://{host}"}):
                status, text, _ = ask(unprotected, method, path, Host=host, **origin, **token, **more)
                if more and method == "POST":  # a WebSocket that begins so asks nothing
                    assert status == 405
                else:
                    assert status == 403 and "not known as" in text
        for page in ("http://evil.example", "null"):
            status, text, _ = ask(unprotected, method, path, Origin=page, **token, **more)
            assert (status == 403 and "Origin" in text) or (more and method == "POST" and status == 405)


def test_names_of_the_file_and_addresses_of_the_listener_are_answered(unprotected: Serving) -> None:
    port = unprotected.listening["http"].rpartition(":")[2]
    for host in ("pen.example", f"127.0.0.1:{port}", f"localhost:{port}", "[::1]:7"):
        for origin in ({}, {"Origin": f"http://{host}"}):
            assert ask(unprotected, "GET", "/destinations", Host=host, **origin)[0] == 200
    assert ask(unprotected, "GET", "/destinations", Origin="https://pen.example")[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        "GET /destinations HTTP/1.1",
        "GET /destinations HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example",
        "GET http://evil.example/destinations HTTP/1.1\r\nHost: 127.0.0.1",
        "GET /states HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nOrigin: http://127.0.0.1",
    ],
)
def test_what_does_not_say_once_whom_it_asks_is_refused(unprotected: Serving, head: str) -> None:
    with opened(unprotected, "http") as connection:
        connection.sendall(f"{head}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
