"""Clients of brokers and of Redis, against a peer that answers anything."""

from __future__ import annotations

import itertools
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.connections.faulty import outage, recovers, subject
from tests.connections.test_faulty_http import writer
from tests.sinks.kafka.epoch_writer import schema

from penstock.model.schema import TableId
from penstock.sinks import registry
from penstock.sinks.base import Commit, LogMessage
from penstock.sinks.redis.options import RedisOptions
from penstock.testing import servers
from penstock.testing.faulty_peer import ANY_PROTOCOL, LINES, Fault, FaultyPeer, Moment, says

TIMEOUT_MS = 500
_STREAM = itertools.repeat(b"x" * 65536)

RESP = (
    *(
        says(repr(data)[:30], data)
        for data in (
            b":x\r\n", b"$x\r\n", b"$-5\r\n", b"*x\r\n", b"*99999999999999\r\n", b":5\r\n" * 50,
            b"*1\r\n" * 100_000, b"*-5\r\n" * 50, b"%1\r\n*0\r\n:1\r\n" * 50, b"*0\r\n" * 50,
            b"_\r\n" * 50, b"$3\r\nabc\r\n" * 50,
            b"-LOADING Redis is loading the dataset in memory\r\n" * 50,
            b"-READONLY You can't write against a read only replica.\r\n" * 50,
            b"-MASTERDOWN Link with MASTER is down\r\n" * 50, b"-CLUSTERDOWN The cluster is down\r\n" * 50,
            b"-OOM command not allowed when used memory > 'maxmemory'.\r\n" * 50,
            b"-MISCONF Errors writing to the AOF file\r\n" * 50,
            b"-ERR max number of clients reached\r\n" * 50,
            b"HTTP/1.1 200 OK\r\n\r\n<html>",
        )
    ),
    Fault("a length without end", lambda: itertools.chain([b"$99999999999\r\n"], _STREAM)),
    Fault("a list without end", lambda: itertools.chain(
        [b"*99999999999\r\n"], itertools.repeat(b":1\r\n" * 9999))),
)  # fmt: skip
_INFO = b'INFO {"server_id":"x","version":"2","headers":true,"max_payload":1048576}\r\n'
NATS = (
    *(
        says(repr(data)[-30:], data)
        for data in (
            b"INFO {\r\n", b"INFO []\r\n", b'INFO {"max_payload":"x","connect_urls":7}\r\n',
            b"INFO " + b'{"a":' * 50_000 + b"\r\n", b"-ERR 'Stale Connection'\r\n", b"MSG\r\n",
            b"MSG a b c d e f\r\n",
            b"MSG a x 1\r\n", b"MSG a 1 -5\r\n", b"MSG a 1 99999999999999\r\n", b"HMSG a 1 9 1\r\n",
            b"HMSG a 1 9999999999 99999999999\r\n", b"HMSG a 1 12 12\r\nNATS/1.0 abc\r\n", b"\xff\xfe\r\n",
            _INFO + b"PONG\r\nMSG _INBOX.x.r1 1 2\r\n{}\r\n", _INFO + b"PONG\r\n+OK\r\n",
        )
    ),
    Fault("INFO without end", lambda: itertools.chain([_INFO], itertools.repeat(b"PING\r\n" * 1000))),
    Fault("messages without end", lambda: itertools.chain(
        [_INFO, b"PONG\r\n"], itertools.repeat(b"MSG a 1 1000\r\n" + b"x" * 1000 + b"\r\n"))),
    Fault("a line without end", lambda: itertools.chain([b"INFO {"], _STREAM)),
)  # fmt: skip


def _frame(key: int, body: bytes) -> bytes:
    return struct.pack(">IHH", len(body) + 4, key, 1) + body


_CONFIRMED = _frame(3, struct.pack(">BiQ", 1, 1, 7))
STREAMS = (
    *(
        says(name, data)
        for name, data in (
            ("an empty frame", struct.pack(">I", 0)), ("a frame of two bytes", struct.pack(">IH", 2, 1)),
            ("a frame of 4 GB", struct.pack(">I", 2**32 - 1) + b"x" * 100),
            ("a confirmation of too many", _frame(3, struct.pack(">Bi", 1, 2**31 - 1))),
            ("a confirmation of -1", _frame(3, struct.pack(">Bi", 1, -1))),
            ("a short confirmation", _frame(3, b"\x01")), ("a short error", _frame(4, b"\x01\x02")),
            ("a chunk of nothing", _frame(8, b"\x01")), ("a short answer", _frame(0x8011, b"\0\0\0\1")),
            ("a chunk that lies", _frame(8, b"\x01" + b"\x7f" * 60)),
            ("an answer with an unknown code", b"\0\0\0\5"),
        )
    ),
    Fault("confirmations without end", lambda: itertools.repeat(_CONFIRMED * 1000)),
    Fault("heartbeats without end", lambda: itertools.repeat(_frame(23, b"") * 5000)),
    Fault("a frame without end", lambda: itertools.chain([struct.pack(">I", 64 * 1024**2)], _STREAM)),
)  # fmt: skip


@dataclass
class Client:
    peer: FaultyPeer
    attempt: Callable[[], object]
    faults: tuple[Fault, ...]


def log_writer(section: dict[str, Any]) -> Callable[[], object]:
    """Writes one more epoch each time."""
    kind = registry.kind(section["type"])
    no_spark: Any = None
    pipeline, database = str(uuid.uuid4()), f"f{os.getpid()}"
    sink: Any = kind.open(kind.options.model_validate(section), no_spark, pipeline, registry.NO_SHARDS)
    sink.check()
    sink.begin(1)
    epochs = itertools.count(1)

    def attempt() -> None:
        messages: list[list[LogMessage]] = [[(TableId(database, "orders"), b"k", b"v", 1)]]
        sink.write_epoch(Commit(pipeline, next(epochs)), [schema(database, "orders")], messages, "")

    return attempt


def redis() -> Iterator[Client]:
    with servers.valkey() as server, FaultyPeer(server.host, server.port) as peer:
        url = f"redis://127.0.0.1:{peer.port}/0"
        options = {"type": "redis", "url": url, "password": server.password, "timeout": TIMEOUT_MS}
        yield Client(peer, writer(RedisOptions.model_validate(options)), RESP)


def redis_streams() -> Iterator[Client]:
    with servers.valkey() as server, FaultyPeer(server.host, server.port) as peer:
        own = {
            "type": "redis-streams",
            "url": f"redis://127.0.0.1:{peer.port}/0",
            "password": server.password,
        }
        yield Client(peer, log_writer({**own, "format": "json", "timeout": TIMEOUT_MS}), RESP)


def nats() -> Iterator[Client]:
    with servers.nats() as server, FaultyPeer(server.host, server.port) as peer:
        own = {"type": "nats", "url": f"nats://127.0.0.1:{peer.port}", "user": server.user}
        more = {"password": server.password, "format": "json", "timeout": TIMEOUT_MS}
        yield Client(peer, log_writer({**own, **more, "subject": "penstock.{database}.{table}"}), NATS)


def rabbitmq() -> Iterator[Client]:
    with servers.rabbitmq() as server, FaultyPeer(server.host, server.port) as peer:
        url = server.url.replace(str(server.port), str(peer.port))
        own = {"type": "rabbitmq-streams", "url": url, "user": server.user, "password": server.password}
        yield Client(peer, log_writer({**own, "format": "json", "timeout": TIMEOUT_MS}), STREAMS)


CLIENTS = {"nats": nats, "redis": redis, "redis-streams": redis_streams, "rabbitmq-streams": rabbitmq}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(one, marks=pytest.mark.slow_for("nats", "redis-streams", "rabbitmq-streams"))
        for one in CLIENTS
    ],
)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    yield from CLIENTS[request.param]()


def test_whatever_is_answered_at_whatever_moment_is_waited_for(client: Client) -> None:
    client.attempt()
    moments: list[tuple[Fault, Moment]] = [
        (fault, at)
        for at in ("connect", "answer", "middle")
        for fault in (*ANY_PROTOCOL, *client.faults)
        if fault is not LINES or client.faults is not RESP  # which is what Redis answers if all is well
    ]
    for fault, at in moments:
        with subject(f"{fault}, at {at}"):
            outage(client.peer, fault, at, client.attempt)
            recovers(client.attempt)
