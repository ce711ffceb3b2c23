"""Messages of Debezium and Maxwell themselves, beside ours, on one log: they differ only where
docs/formats.md says so."""

from __future__ import annotations

import decimal
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import java, workload
from penstock import _core
from penstock.testing.servers import MySqlServer

pytestmark = pytest.mark.slow

TABLE = """CREATE TABLE shop.t (
    id INT PRIMARY KEY, tiny TINYINT, flag TINYINT(1), utiny TINYINT UNSIGNED, medium MEDIUMINT, big BIGINT,
    ubig BIGINT UNSIGNED, price DECIMAL(20,4), ratio DOUBLE, small FLOAT, flags BIT(12), one BIT(1),
    born YEAR, day DATE, at DATETIME, at3 DATETIME(3), at6 DATETIME(6), seen TIMESTAMP NULL,
    seen3 TIMESTAMP(3) NULL, seen6 TIMESTAMP(6) NULL, took TIME, took2 TIME(2), name VARCHAR(50),
    latin VARCHAR(300) CHARACTER SET latin1, fixed CHAR(10), body TEXT, pad BINARY(4), raw VARBINARY(20),
    data BLOB, kind ENUM('a','b','c'), tags SET('x','y','z'), doc JSON, g GEOMETRY, p POINT)"""
ROW = """INSERT INTO shop.t VALUES (1, -128, 1, 255, -8388608, -9223372036854775808, 9223372036854775807,
    -1234567890.5000, 0.1, 0.25, b'101', b'1', 2024, '2024-02-29', '2024-02-29 23:59:59',
    '2024-02-29 23:59:59.123', '2024-02-29 23:59:59.123456', '2024-02-29 23:59:59', '2024-02-29 23:59:59.120',
    '2024-02-29 23:59:59.123456', '10:11:12', '10:11:12.5', 'käse 🧀', 'é€', 'ab  ', 'text\\n"q"', x'0001',
    x'00ff', x'deadbeef', 'b', 'x,z', '{"b": [1, 2.5, null], "a": "ü"}',
    ST_GeomFromText('LINESTRING(0 0,1 1.5)'), POINT(1,2.5))"""
CHANGES = (
    "BEGIN", ROW, "INSERT INTO shop.t (id) VALUES (2), (3)",
    "UPDATE shop.t SET name = 'x', price = 1.5 WHERE id < 3", "INSERT INTO shop.keyless VALUES (1, 'q')",
    "COMMIT",
    "UPDATE shop.t SET id = 30 WHERE id = 3", "DELETE FROM shop.t WHERE id = 1", "DELETE FROM shop.keyless",
)  # fmt: skip
OUTPUT = ("thread_id", "server_id", "primary_keys", "primary_key_columns", "binlog_position")

Message = tuple[Any, Any]


@pytest.fixture(scope="module")
def log() -> Iterator[tuple[MySqlServer, Path, str]]:
    """A server, the file of its log with the changes, and the GTIDs before them."""
    with MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute(
            *workload.PEER_ACCOUNT, "CREATE DATABASE shop", TABLE,
            "CREATE TABLE shop.keyless (a INT, b VARCHAR(10))", "CREATE TABLE shop.tail (id INT PRIMARY KEY)",
            "FLUSH BINARY LOGS",
        )  # fmt: skip
        path = server.binlog_files()[-1]
        [(gtids,)] = server.query("SELECT @@gtid_executed")
        server.execute(
            "SET time_zone = '+00:00'", *CHANGES, "FLUSH BINARY LOGS", "INSERT INTO shop.tail VALUES (1)"
        )
        yield server, path, gtids.replace("\n", "")


def peers_messages(command: list[str], log: tuple[MySqlServer, Path, str], *more: str) -> list[Message]:
    server, path, _ = log
    account = (workload.PEER_USER, workload.PEER_PASSWORD)
    place = (server.host, str(server.port), *account, path.name, "4", "shop", "tail")
    done = subprocess.run([*command, *place, *more], capture_output=True, text=True, timeout=300, check=True)
    return [parsed(line) for line in done.stdout.splitlines()]


def our_messages(log: tuple[MySqlServer, Path, str], format: str, **options: Any) -> list[Message]:
    encoder = _core.LogEncoder([(str(log[1]), 0, 0, None, [])], format, options=json.dumps(options))
    lines: list[str] = []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            lines += step.lines(keys=True).decode().splitlines()
    return [parsed(line) for line in lines]


def parsed(line: str) -> Message:
    key, _, value = line.partition("\t")
    return loads(key), loads(value)


def loads(text: str) -> Any:
    return json.loads(text, parse_float=decimal.Decimal) if text and text != "null" else None


def differences(ours: Any, peers: Any, path: str = "") -> Iterator[str]:
    """Paths of values that are not equal, also in type and in the order of fields."""
    if isinstance(ours, dict) and isinstance(peers, dict):
        if list(ours) != list(peers):
            yield f"{path}: {list(ours)} {list(peers)}"
        for name in ours.keys() & peers.keys():
            yield from differences(ours[name], peers[name], f"{path}.{name}" if path else name)
    elif type(ours) is not type(peers) or ours != peers:
        yield path


def different_fields(ours: list[Message], peers: list[Message]) -> set[str]:
    names = ("key", "value")
    return {
        path
        for our, peer in zip(ours, peers, strict=True)
        for path in differences(dict(zip(names, our, strict=True)), dict(zip(names, peer, strict=True)))
    }


def test_debezium_writes_the_same_messages(log: tuple[MySqlServer, Path, str]) -> None:
    command = java.compiled("DebeziumMessages", java.debezium_jars())
    peers = peers_messages(command, log, log[2], "provide.transaction.metadata=true")
    # The last one begins the transaction of the tail. Without a key, a tombstone would have nothing.
    peers = [one for one in peers[:-1] if one != (None, None)]
    ours = our_messages(log, "debezium", topic_prefix="bench", provide_transaction_metadata=True)
    assert len(ours) == len(peers) > 15
    found = different_fields(ours, peers)
    times = {"value.ts_ms", "value.ts_us", "value.ts_ns"}  # of processing
    documents = {"value.before.doc", "value.after.doc"}  # spaces
    assert found <= {"value.source.version", "value.data_collections", *times, *documents}
    for our, peer in zip(ours, peers, strict=True):
        for image in ("before", "after"):
            if our[1] and (our[1].get(image) or {}).get("doc"):
                assert json.loads(our[1][image]["doc"]) == json.loads(peer[1][image]["doc"])


def test_maxwell_writes_the_same_messages(log: tuple[MySqlServer, Path, str]) -> None:
    beside = ["jdk/nashorn/api/scripting/ScriptObjectMirror"]
    peers = peers_messages(java.compiled("MaxwellMessages", java.maxwell_jars(), beside=beside), log)
    ours = our_messages(log, "maxwell", **{f"output_{name}": True for name in OUTPUT})
    assert len(ours) == len(peers) == 9
    found = different_fields(ours, peers)
    # Maxwell leaves out the zero bytes of BINARY(n), and a row without a key has a random name.
    assert found == {"value.data.pad", "key._uuid"}
