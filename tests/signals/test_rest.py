"""Signals that come over HTTP: a real server, real connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock.config import RestConfig, SignalsConfig
from penstock.errors import ConfigError
from penstock.signals import rest
from penstock.state import StateStore, requests
from penstock.testing.scenario import wait_for

TOKEN = "0123456789abcdef-a-token"
HOST = "Host: localhost"
LOG = {"id": "a", "type": "log", "data": {"message": "x"}}


@dataclass
class Client:
    state: StateStore
    address: str

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        """Status, and what the JSON of the answer says."""
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        with contextlib.closing(connection):
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, sent, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def get(self, path: str) -> tuple[int, Any, str]:
        """Status, JSON, and what the header Link says."""
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read()), response.headers.get("Link", "")

    def post(self, body: Any, **options: Any) -> tuple[int, Any]:
        return self.ask("POST", "/signals", body, **options)

    def say(self, head: str) -> socket.socket:
        """A connection on which this was said: lines of a request, without the empty one."""
        connection = socket.create_connection(self.place, timeout=60)
        with contextlib.suppress(ConnectionError):  # it may be refused before its end
            connection.sendall("\r\n".join([*head.split("\n"), "", ""]).encode())
        return connection

    def report(self, **fields: Any) -> None:
        """As the pipeline's loop does."""
        document = {"pid": os.getpid(), "updated": time.time(), **fields}
        (self.state.path.parent / "status.json").write_text(json.dumps(document))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    state = StateStore(tmp_path_factory.mktemp("rest"))
    with rest.serving(RestConfig(listen="127.0.0.1:0", token=TOKEN), state) as address:
        yield Client(state, address)
    state.close()


@pytest.fixture
def client(server: Client) -> Client:
    """Of a server that knows no signal and no report."""
    with contextlib.closing(sqlite3.connect(server.state.path)) as database, database:
        database.execute("DELETE FROM signals")
    (server.state.path.parent / "status.json").unlink(missing_ok=True)
    return server


def test_a_signal_is_accepted_once_and_what_became_of_it_is_told(client: Client) -> None:
    status, first = client.post(LOG)
    assert (status, first["status"], first["channel"]) == (202, "accepted", "rest")
    client.state.set_signal("a", "done", {"message": "x"})
    status, again = client.post(LOG)
    assert (status, again["status"], again["received"]) == (200, "done", first["received"])
    status, other = client.post({"type": "park", "data": {"tables": ["shop.orders"]}})
    assert status == 202 and other["id"] not in ("", "a")
    assert [one.id for one in client.state.signals()] == ["a", other["id"]]
    status, known = client.ask("GET", "/signals")
    assert status == 200 and [one["id"] for one in known] == ["a", other["id"]]
    assert client.ask("GET", "/signals/a") == (200, again)
    assert client.ask("GET", "/signals/b")[0] == 404


@pytest.mark.parametrize("signal_id", ["a/b", "ä ?#%", "x" * 255, "..", "\0"])
def test_a_signal_is_found_by_any_id(signal_id: str, client: Client) -> None:
    assert client.post(LOG | {"id": signal_id})[0] == 202
    status, found = client.ask("GET", "/signals/" + quote(signal_id, safe=""))
    assert (status, found["id"]) == (200, signal_id)


def test_signals_of_other_channels_are_shown_too(client: Client) -> None:
    client.state.send("by hand", "log", {"message": "ä"}, "command")
    assert client.ask("GET", "/signals/by%20hand")[1]["channel"] == "command"


def deep(levels: int) -> bytes:
    return b'{"type": "log", "data": {"message": ' + b"[" * levels + b"]" * levels + b"}}"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, b"no json", "not JSON"),
        (400, b"[]", "not a JSON object"),
        (400, b"\xff\xfe", "UTF-8"),
        (400, b"[" * 500_000, "nested"),
        (400, b'{"id": ' + b"1" * 5000 + b"}", "not JSON"),
        (422, b"", "type"),
        (422, b"{}", "type"),
        (422, {"type": 7}, "type"),
        (422, {"type": "nonsense"}, "Unknown signal type 'nonsense'"),
        (422, {"type": "x" * 900_000}, "type"),
        (422, LOG | {"id": 5}, "id"),
        (422, LOG | {"id": ""}, "id"),
        (422, LOG | {"id": "x" * 256}, "id"),
        (422, LOG | {"id": "\ud800"}, "UTF-8"),
        (422, LOG | {"data": []}, "data"),
        (422, LOG | {"data": None}, "data"),
        (422, LOG | {"data": {"message": 5}}, "message"),
        (422, LOG | {"data": {"message": "\ud800"}}, "UTF-8"),
        (422, LOG | {"data": {"message": float("nan")}}, "NaN"),
        (422, b'{"type": "log", "data": {"message": 1e999}}', "NaN"),
        (422, LOG | {"data": {"m" * 500_000: ""}}, "log: "),
        (422, LOG | {"date": {}}, "only id, type and data"),
        (422, {"type": "park", "data": {"tables": []}}, "tables"),
        (422, deep(40), "nested"),
        (422, deep(400), "nested"),
    ],
)
def test_what_is_no_signal_is_refused_with_the_reason(
    status: int, body: Any, said: str, client: Client
) -> None:
    found, answer = client.post(body)
    assert found == status and set(answer) == {"message", "hint"}, answer
    assert said in answer["message"] and len(answer["message"]) < 3000
    assert client.state.signals() == []


@pytest.mark.parametrize("method, path", [("POST", "/signals"), ("GET", "/signals"), ("GET", "/signals/a"),
                                          ("GET", "/status")])  # fmt: skip
@pytest.mark.parametrize("given", [None, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
                                   f"Basic {TOKEN}", TOKEN, "Bearer \xff"])  # fmt: skip
def test_without_the_token_nothing_is_done_or_shown(
    method: str, path: str, given: str | None, client: Client
) -> None:
    client.state.send("a", "log", {}, "command")
    client.report()
    headers = {} if given is None else {"Authorization": given}
    status, answer = client.ask(method, path, LOG | {"id": "b"}, token=None, **headers)
    assert status == 401 and set(answer) == {"message", "hint"} and TOKEN not in json.dumps(answer)
    assert [one.id for one in client.state.signals()] == ["a"]


def test_there_are_no_pages_about_the_interface(client: Client) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/signals/"):
        status, answer = client.ask("GET", path)
        assert status == 404 and set(answer) == {"message", "hint"}
    assert client.ask("DELETE", "/signals")[0] == 405
    assert client.ask("OPTIONS", "/signals", Origin="https://example.com")[0] == 405


def test_health_and_status_are_those_of_this_process(client: Client) -> None:
    """A report that another process left behind, or an old one, is no sign of life."""
    assert client.ask("GET", "/health", token=None) == (503, {"healthy": False})
    assert client.ask("GET", "/status")[0] == 503
    client.report(pid=1)
    assert client.ask("GET", "/health", token=None)[0] == client.ask("GET", "/status")[0] == 503
    client.report(updated=time.time() - 600)
    assert client.ask("GET", "/health", token=None)[0] == 503
    client.report(epoch=7)
    assert client.ask("GET", "/health", token=None) == (200, {"healthy": True})
    status, report = client.ask("GET", "/status")
    assert status == 200 and report["epoch"] == 7


# hostile clients --------------------------------------------------------------------------------------------


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
        for _ in range(rest.BODY_BYTES_MAX // 65536):
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
    monkeypatch.setattr(rest, "REQUEST_SECONDS_MAX", 0.2)
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
    monkeypatch.setattr(rest, "REQUEST_SECONDS_MAX", 9000.0)  # time alone closes none
    before = descriptors()
    held: list[socket.socket] = []
    for _ in range(5 * rest.CONNECTIONS_MAX):
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(client.place, timeout=60))
    ours = rest.CONNECTIONS_MAX + 8  # those of the server; what it is just closing may stand for a moment
    wait_for(lambda: descriptors() <= before + len(held) + ours, "connections being closed")
    for one in held:
        one.close()

    def answers() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return client.post(LOG)[0] in (200, 202)
        return False

    wait_for(answers, "an answer after the others have gone")
    wait_for(lambda: descriptors() <= before + 8, "connections being given back")


def test_many_at_once_are_each_accepted_once(client: Client) -> None:
    def send(number: int) -> int:
        return client.post(LOG | {"id": f"s{number % 50}"})[0]

    with ThreadPoolExecutor(16) as senders:
        answers = list(senders.map(send, range(200)))
    assert answers.count(202) == 50 and answers.count(200) == 150
    assert len(client.state.signals()) == 50


def test_lists_come_in_pages_each_signal_once(client: Client) -> None:
    for number in range(25):
        client.state.send(f"s{number}", "log", {}, "command")
    seen: list[str] = []
    path, pages = "/signals?limit=10", 0
    while path:
        status, found, link = client.get(path)
        assert status == 200 and len(found) <= 10
        seen += [one["id"] for one in found]
        pages += 1
        path = link.partition("<")[2].partition(">")[0]
    assert seen == [f"s{number}" for number in range(25)] and pages == 3


def test_a_page_is_bounded_in_bytes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PAGE_BYTES_MAX", 5000)
    for number in range(4):
        client.state.send(f"s{number}", "log", {"message": "x" * 2000}, "command")
    client.state.send("huge", "log", {"message": "x" * 9000}, "command")
    assert [one["id"] for one in client.get("/signals")[1]] == ["s0", "s1"]
    last = client.state.signals()[3].number
    assert [one["id"] for one in client.get(f"/signals?after={last}")[1]] == ["huge"]
    assert client.get(f"/signals?after={last + 1}")[1:] == ([], "")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "after=-1", "after=1e3", "after=" + "9" * 30,
              "limit=%D9%A3", "page=2", "limit="]
)  # fmt: skip
def test_a_parameter_that_cannot_be_is_refused(query: str, client: Client) -> None:
    status, answer = client.ask("GET", f"/signals?{query}")
    assert status == 400 and set(answer) == {"message", "hint"}


def test_while_too_many_signals_wait_no_more_are_taken(client: Client) -> None:
    client.state.limit_signals(SignalsConfig(waiting_max=2))
    try:
        assert client.post(LOG)[0] == client.post(LOG | {"id": "b"})[0] == 202
        status, answer = client.post(LOG | {"id": "c"})
        assert status == 503 and "No more signals are accepted" in answer["message"]
        assert client.post(LOG)[0] == 200, "one that is known is answered"
        client.state.set_signal("a", "done", {})
        assert client.post(LOG | {"id": "c"})[0] == 202
    finally:
        client.state.limit_signals(SignalsConfig())


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


def test_an_error_of_ours_is_told_without_a_trace(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("CANARY9137")

    monkeypatch.setattr(StateStore, "signals_page", broken)
    status, answer = client.ask("GET", "/signals")
    assert status == 500 and "bug in Penstock" in answer["message"]
    assert "CANARY9137" not in json.dumps(answer) and "Traceback" not in json.dumps(answer)


def test_answers_do_not_name_the_software(client: Client) -> None:
    with client.say("GET /health HTTP/1.1\nHost: localhost\nConnection: close") as connection:
        answer = b""
        while piece := connection.recv(10_000):
            answer += piece
    assert not [name for name in (b"uvicorn", b"server:", b"python", b"starlette") if name in answer.lower()]


# the server -------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named(client: Client) -> None:
    state = client.state
    with (
        pytest.raises(ConfigError, match=f"{client.address}, which cannot be bound: another process"),
        rest.serving(RestConfig(listen=client.address, token=TOKEN), state),
    ):
        pass


def test_an_address_that_is_not_of_this_machine_is_named(tmp_path: Path) -> None:
    config = RestConfig(listen="192.0.2.1:0", token=TOKEN)
    state = StateStore(tmp_path)
    with pytest.raises(ConfigError, match="which cannot be bound: ") as refused, rest.serving(config, state):
        pass
    assert "192.0.2.1:0" in refused.value.message
    state.close()


def test_the_port_is_free_again_when_it_has_stopped(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    listen = "127.0.0.1:0"
    for number in range(3):
        with rest.serving(RestConfig(listen=listen, token=TOKEN), state) as listen:
            assert Client(state, listen).post(LOG | {"id": str(number)})[0] == 202
        with pytest.raises(ConnectionRefusedError):
            Client(state, listen).post(LOG)
    state.close()


def test_the_web_framework_is_not_imported_where_it_is_not_used() -> None:
    script = "import sys, penstock.cli, penstock.runtime.pipeline; "
    script += "print([m for m in sys.modules if 'fastapi' in m])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", ["/health", "/status", "/signals", "/signals/a"])
def test_a_page_of_a_stranger_gets_nothing(client: Client, path: str) -> None:
    """By DNS rebinding, or from its own server."""
    client.report()
    for host in ("evil.example", "evil.example:8190", "192.0.2.1"):
        for origin in ({}, {"Origin": f"http://{host}"}):
            status, said = client.ask("GET", path, Host=host, **origin)
            assert status == 403 and "signals.rest.hosts" in said["message"]
    assert client.ask("GET", path, Origin="http://evil.example")[0] == 403
    assert client.ask("GET", path, Host="localhost:9000")[0] in (200, 404)


def test_signals_of_a_page_of_a_stranger_are_not_taken(client: Client) -> None:
    assert client.post(LOG, Host="evil.example")[0] == 403
    assert client.post(LOG, Origin="http://evil.example")[0] == 403
    assert client.state.signals() == []


def test_the_token_cannot_be_guessed(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    config = RestConfig(
        listen="0.0.0.0:0", token=TOKEN, failed_logins_per_minute_max=5, hosts=["pipeline.svc"]
    )
    with rest.serving(config, state) as address:
        client = Client(state, f"127.0.0.1:{address.rpartition(':')[2]}")
        assert client.ask("GET", "/signals", Host="pipeline.svc")[0] == 200
        assert client.ask("GET", "/signals", Host="10.2.3.4:8190")[0] == 200  # the address of a pod
        assert [client.ask("GET", "/signals", token=f"wrong {n}")[0] for n in range(7)] == [401] * 5 + [
            429
        ] * 2
        status, said = client.ask("GET", "/signals")
        assert status == 429 and "too many failed logins" in said["message"]
        assert client.ask("GET", "/health")[0] == 503  # needs no token; no pipeline runs here
    state.close()
