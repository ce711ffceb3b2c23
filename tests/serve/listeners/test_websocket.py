"""WebSocket, as a plain socket sees it: frames of RFC 6455."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import psutil
import pytest
from tests.serve.conftest import database_of
from tests.serve.raw_client import RawClient
from tests.serve.serving import Serving, eventually, rows_of, serving

from penstock.testing.servers import Database, MySqlServer

HEADERS = {
    "upgrade": "websocket", "connection": "Upgrade", "host": "127.0.0.1:8191",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version": "13",
}  # fmt: skip
TOKEN = "0123456789abcdef"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
NORMAL, UNWANTED = 1000, 1003


class Socket:
    """A client of the protocol."""

    def __init__(
        self, address: str, path: str, *more: str, changed: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        host, _, port = address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)), timeout=20)
        lines = [
            f"GET {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in {**HEADERS, **changed}.items()),
            *more,
        ]
        self.connection.sendall("\r\n".join((*lines, "", "")).encode())
        self.stream = self.connection.makefile("rb")
        self.status = int(self.stream.readline().split()[1])
        self.headers = b"".join(iter(self.stream.readline, b"\r\n"))

    def frame(self) -> tuple[int, bytes]:
        first, length = self.stream.read(2)
        assert first & 0x80 and not length & 0x80  # whole, and not masked
        if length == 126:
            [length] = struct.unpack(">H", self.stream.read(2))
        elif length == 127:
            [length] = struct.unpack(">Q", self.stream.read(8))
        return first & 0x0F, self.stream.read(length)

    def change(self) -> tuple[str, Any]:
        kind, payload = self.frame()
        assert kind == TEXT
        said = json.loads(payload)
        return said["id"], said["change"]

    def send(self, kind: int, payload: bytes = b"") -> None:
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        self.connection.sendall(bytes((0x80 | kind, 0x80 | len(payload))) + mask + masked)

    def close(self) -> None:
        self.stream.close()
        self.connection.close()


@pytest.fixture(scope="module")
def database(source: MySqlServer) -> Database:
    return database_of(source, "serve_websocket")


@pytest.fixture(scope="module")
def served(
    source: MySqlServer, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    options: dict[str, Any] = {
        "listen": {"canal": "127.0.0.1:0"},
        "http": {"listen": "127.0.0.1:0"},
        "tokens": {"page": {"token": TOKEN}},
        "destinations": {"example": {"filter": rf"{database.name}\..*", "start": "earliest", "ddl": False}},
    }
    with serving(source, tmp_path_factory.mktemp("websocket"), **options) as made:
        yield made


PATH = "/destinations/example/events"
LOGIN = f"Sec-WebSocket-Protocol: penstock, token.{TOKEN}"


def test_changes_come_as_messages_until_the_client_ends_it(served: Serving, database: Database) -> None:
    database.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, REPEAT('x', 200))")
    client = Socket(served.listening["http"], f"{PATH}?start=earliest", LOGIN)
    assert client.status == 101 and b"sec-websocket-protocol: penstock\r\n" in client.headers.lower()
    found = [client.change() for _ in range(3)]
    assert [change["after"]["id"] for _, change in found] == [1, 2, 3]
    client.send(PING, b"there?")
    assert client.frame() == (PONG, b"there?")
    client.send(CLOSE, struct.pack(">H", NORMAL))
    assert client.frame() == (CLOSE, struct.pack(">H", NORMAL))
    assert client.stream.read() == b""
    client.close()
    again = Socket(served.listening["http"], f"{PATH}?after={found[0][0]}", LOGIN)
    assert again.change()[1]["after"]["id"] == 2
    again.send(TEXT, b"hello")
    while (frame := again.frame())[0] != CLOSE:
        assert frame[0] == TEXT
    assert struct.unpack(">H", frame[1][:2]) == (UNWANTED,)
    again.close()


@pytest.mark.parametrize(
    "changed",
    [{"sec-websocket-version": "8"}, {"sec-websocket-key": "short"}, {"sec-websocket-key": ""}],
    ids=str,
)
def test_a_handshake_of_something_else_is_refused(served: Serving, changed: dict[str, str]) -> None:
    assert Socket(served.listening["http"], PATH, LOGIN, changed=changed).status in (400, 426)


@pytest.mark.parametrize(
    "frame", ["8905", "8105" + "48656c6c6f", "c985", "89fe0080", "09850102030400000000", "83800000"]
)
def test_frames_that_no_client_may_send_end_the_connection(served: Serving, frame: str) -> None:
    """Not masked, with a bit that is reserved, a long or divided ping, an unknown kind."""
    client = Socket(served.listening["http"], PATH, LOGIN)
    assert client.status == 101
    client.connection.sendall(bytes.fromhex(frame) + bytes(300))
    kind, payload = client.frame()
    assert kind == CLOSE and struct.unpack(">H", payload[:2])[0] in (1002, 1007, 1009)
    client.close()


def test_a_message_that_never_ends_is_refused_once_it_is_long(served: Serving) -> None:
    client = Socket(served.listening["http"], PATH, LOGIN)
    piece = b"\x00\xfe\x03\xe8" + bytes(4) + bytes(1000)
    client.connection.sendall(b"\x01" + piece[1:] + piece * 3)
    assert client.frame()[0] == CLOSE
    client.close()


def test_pings_of_a_client_that_reads_no_answer_fill_no_memory(served: Serving) -> None:
    assert served.process is not None
    server = psutil.Process(served.process.pid)
    client = Socket(served.listening["http"], PATH, LOGIN)
    client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = server.memory_info().rss
    pings = (b"\x89\xfd" + bytes(4) + b"x" * 125) * 8000
    client.connection.settimeout(120)
    for _ in range(16):  # 16 MB, and their answers
        client.connection.sendall(pings)
    assert server.memory_info().rss - before < 8 * 1024**2
    client.close()


def test_without_its_token_or_from_another_page_nothing_is_read(served: Serving) -> None:
    assert Socket(served.listening["http"], PATH).status == 401
    assert Socket(served.listening["http"], PATH, "Sec-WebSocket-Protocol: token.wrong").status == 401
    assert Socket(served.listening["http"], PATH, LOGIN, "Origin: https://example.com").status == 403


def test_readers_that_do_not_read_hold_up_nobody_and_fill_no_memory(
    served: Serving, database: Database
) -> None:
    assert served.process is not None
    server = psutil.Process(served.process.pid)
    database.execute("ALTER TABLE orders MODIFY note MEDIUMTEXT")
    stuck = [Socket(served.listening["http"], PATH, LOGIN) for _ in range(20)]
    before = server.memory_info().rss
    for number in range(10, 50):
        database.execute(f"INSERT INTO orders VALUES ({number}, REPEAT('x', 1000000))")
    with RawClient(served.address) as client:
        client.subscribe()
        rows = 0
        while rows < 43:
            batch, entries = client.get(100)
            rows += len(rows_of(entries))
            client.acknowledge(batch)
    assert server.memory_info().rss - before < 120 * 1024**2
    for one in stuck:
        one.close()
    eventually(lambda: server.num_fds() < 60, "end of the connections")


@pytest.mark.slow
def test_whoever_is_slow_to_ask_is_sent_away(served: Serving) -> None:
    """A request that comes byte by byte, and a login that never comes."""
    for name in ("http", "canal"):
        host, _, port = served.listening[name].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=1) as slow:
            ended = False
            for _ in range(15):
                try:
                    slow.sendall(b"\x00")
                    ended = slow.recv(1000) == b""
                except TimeoutError:
                    continue
                except ConnectionError:
                    ended = True
                if ended:
                    break
            assert ended, name
