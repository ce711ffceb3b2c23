"""Clients of SQL databases, against a peer that answers anything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.connections.faulty import outage, recovers, subject
from tests.connections.test_faulty_http import writer

from penstock.sinks.sql.options import JdbcOptions
from penstock.testing import servers
from penstock.testing.faulty_peer import ANY_PROTOCOL, Fault, FaultyPeer, Moment, says


def _packet(number: int, data: bytes) -> bytes:
    return len(data).to_bytes(3, "little") + bytes([number]) + data


_OK = b"\x00\x00\x00\x02\x00\x00\x00"
_COLUMN = b"\x03def\x00\x01t\x01t\x01c\x01c\x0c\x2d\x00\x00\x01\x00\x00\xfd\x00\x00\x00\x00\x00"
_ROWS = _packet(1, b"\x01") + _packet(2, _COLUMN) + _packet(3, b"\xfe\x00\x00\x02\x00")


def _rows(number: int = 4) -> Iterator[bytes]:
    yield _ROWS
    for count in itertools.count(number):
        yield _packet(count % 256, b"\xfd\xff\xff\x00" + b"x" * 65535)


MYSQL = (
    says("an empty packet", _packet(0, b"") + _packet(1, b"")),
    says("an error of a standby", _packet(1, b"\xff" + (1290).to_bytes(2, "little") + b"#HY000read only")),
    says("a row that lies", _ROWS + _packet(4, b"\xfd\xff\xff\xff")),
    says("columns that lie", _packet(1, b"\xfe" + b"\xff" * 8)),
    says("half of a packet", b"\xff\xff\x00\x01abc"),
    Fault("rows without end", _rows),
)
POSTGRESQL = (
    says("a length of 2 GB", b"D\x7f\xff\xff\xff" + b"x" * 100),
    says("a negative length", b"T\xff\xff\xff\xff"),
    says("a row without columns", b"D\x00\x00\x00\x06\xff\xff"),
    says("an error of a standby", b"E\x00\x00\x00\x14SERROR\x00C25006\x00\x00Z\x00\x00\x00\x05I"),
    says("an unknown message", b"~\x00\x00\x00\x04" * 50),
)


@dataclass
class Client:
    peer: FaultyPeer
    attempt: Callable[[], object]
    faults: tuple[Fault, ...]


def mysql() -> Iterator[Client]:
    with servers.MySqlServer({}) as server, FaultyPeer(server.host, server.port) as peer:
        options = {"type": "jdbc", "url": f"mysql://127.0.0.1:{peer.port}?ssl-mode=disabled", "user": "u"}
        server.execute("CREATE USER u IDENTIFIED WITH mysql_native_password BY 'u'", "GRANT ALL ON *.* TO u")
        yield Client(peer, _writer({**options, "password": "u"}), MYSQL)


def postgresql() -> Iterator[Client]:
    with servers.postgresql() as server, FaultyPeer(server.host, server.port) as peer:
        url = server.url.replace(str(server.port), str(peer.port))
        options = {"type": "jdbc", "url": url, "user": server.user, "password": server.password}
        yield Client(peer, _writer(options), POSTGRESQL)


def _writer(options: dict[str, Any]) -> Callable[[], object]:
    return writer(JdbcOptions.model_validate({**options, "connect_timeout": 3000, "read_timeout": 1500}))


CLIENTS = {"mysql": mysql, "postgresql": postgresql}


@pytest.fixture(
    scope="module", params=[pytest.param(one, marks=pytest.mark.slow_for("mysql")) for one in CLIENTS]
)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    yield from CLIENTS[request.param]()


def test_whatever_is_answered_at_whatever_moment_is_waited_for(client: Client) -> None:
    client.attempt()
    moments: list[tuple[Fault, Moment]] = [
        (fault, at) for at in ("connect", "answer", "middle") for fault in (*ANY_PROTOCOL, *client.faults)
    ]
    for fault, at in moments:
        with subject(f"{fault}, at {at}"):
            outage(client.peer, fault, at, client.attempt)
            recovers(client.attempt)
