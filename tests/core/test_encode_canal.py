"""Canal's own entries and flat messages, beside ours, on one log: they differ only where docs/formats.md says
so. Canal's classes read ours."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.logs import schema_of
from tests.core.test_encode_peers import CHANGES, TABLE, differences

from bench import java, workload
from penstock import _core
from penstock.encode.statements import statement_messages
from penstock.testing.servers import MySqlServer

pytestmark = pytest.mark.slow

Log = tuple[MySqlServer, Path, list[str]]


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    """A server, the file of its log with the changes, and the definitions of its tables."""
    # Canal logs in with this plugin only.
    options = {"binlog_row_metadata": "FULL", "default_authentication_plugin": "mysql_native_password"}
    with MySqlServer(options) as server:
        server.execute(
            *workload.PEER_ACCOUNT, "CREATE DATABASE shop", TABLE,
            "CREATE TABLE shop.keyless (a INT, b VARCHAR(10))", "CREATE TABLE shop.tail (id INT PRIMARY KEY)",
            "FLUSH BINARY LOGS",
        )  # fmt: skip
        path = server.binlog_files()[-1]
        server.execute(
            "SET time_zone = '+00:00'", *CHANGES, "FLUSH BINARY LOGS", "INSERT INTO shop.tail VALUES (1)"
        )
        schemas = [schema_of(server, f"shop.{name}").to_json() for name in ("t", "keyless")]
        yield server, path, schemas


@pytest.fixture(scope="module")
def command() -> list[str]:
    return java.compiled("CanalEntries", java.canal_jars())


@pytest.fixture(scope="module")
def peers(log: Log, command: list[str]) -> dict[str, list[Any]]:
    server, path, _ = log
    account = (workload.PEER_USER, workload.PEER_PASSWORD)
    place = (server.host, str(server.port), *account, path.name, "4", "shop", "tail")
    done = subprocess.run([*command, *place], capture_output=True, text=True, timeout=300, check=True)
    return sorted_lines(done.stdout)


def sorted_lines(text: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"entry": [], "flat": []}
    for line in text.splitlines():
        kind, tab, document = line.partition("\t")
        if tab and kind in found:
            found[kind].append(json.loads(document))
    return found


def our_messages(log: Log, format: str, **options: Any) -> list[bytes]:
    _, path, schemas = log
    parts: list[_core.LogPart] = [(str(path), 0, 0, None, [])]
    encoder = _core.LogEncoder(parts, format, options=json.dumps(options), schemas=schemas)
    found: list[bytes] = []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            found += [value or b"" for _, _, value, _ in step.messages()]
    return found


def our_entries(log: Log, command: list[str], **options: Any) -> list[Any]:
    lines = b"\n".join(base64.b64encode(one) for one in our_messages(log, "canal-entry", **options))
    done = subprocess.run(command, input=lines, capture_output=True, timeout=60, check=True)
    return sorted_lines(done.stdout.decode())["entry"]


def columns(entry: Any) -> Iterator[Any]:
    for row in entry["stored"].get("rowDatas", []):
        for image in ("beforeColumns", "afterColumns"):
            yield from row.get(image, [])


def assert_same_entries(ours: list[Any], theirs: list[Any]) -> None:
    """They are equal but for what docs/formats.md lists."""
    for our, their in zip(ours, theirs, strict=True):
        # Canal has GTIDs only if it reads by them.
        properties = our["header"].pop("props")
        assert properties.pop(0)["key"] == "curtGtid"
        assert properties == their["header"].pop("props", [])
        for mine, peers_own in zip(columns(our), columns(their), strict=True):
            if mine["name"] == "pad" and "value" in mine:
                # Canal leaves out the zero bytes of BINARY(n).
                assert mine.pop("value") == peers_own.pop("value") + "\0\0"
            if mine["name"] == "latin" and "value" in mine:
                # Canal cannot read latin1.
                assert (mine.pop("value"), peers_own.pop("value")) == ("é€", "\ufffd")
            assert mine == peers_own
        assert our == their


def test_entries_are_those_of_canal(log: Log, command: list[str], peers: dict[str, list[Any]]) -> None:
    ours = our_entries(log, command, faithful=True)
    # The last one begins the transaction of the tail.
    theirs = peers["entry"][:-1]
    assert len(ours) == len(theirs) == 15
    assert_same_entries(ours, theirs)


def test_flat_messages_are_those_of_canal(log: Log, peers: dict[str, list[Any]]) -> None:
    ours = [json.loads(one) for one in our_messages(log, "canal", faithful=True)]
    theirs = peers["flat"]
    assert len(ours) == len(theirs) == 7
    found = {path for our, their in zip(ours, theirs, strict=True) for path in differences(our, their)}
    # Canal's `sqlType` is that of the last row: of nulls and of large unsigned numbers it is another.
    types = {"sqlType.utiny", "sqlType.tags", "sqlType.doc"}
    assert found <= {"gtid", "id", "ts", "data", *types}
    for our, their in zip(ours, theirs, strict=True):
        for mine, peers_own in zip(our["data"], their["data"], strict=True):
            assert {name for name in mine if mine[name] != peers_own[name]} <= {"pad", "latin"}


def test_sane_entries_have_labels_and_types_that_fit_them(log: Log, command: list[str]) -> None:
    entries = our_entries(log, command)
    [row] = entries[1]["stored"]["rowDatas"]
    found = {column["name"]: (column["value"], column["sqlType"]) for column in row["afterColumns"]}
    assert (found["kind"], found["tags"], found["price"]) == (("b", 12), ("x,z", 12), ("-1234567890.5000", 3))


def test_entries_of_statements_are_those_of_canal(log: Log, command: list[str], tmp_path: Path) -> None:
    server, *_ = log
    server.execute("FLUSH BINARY LOGS")
    path = server.binlog_files()[-1]
    server.execute(
        "CREATE TABLE shop.ddl (id INT PRIMARY KEY)", "ALTER TABLE shop.ddl ADD name VARCHAR(9)",
        "RENAME TABLE shop.ddl TO shop.ddl2", "TRUNCATE TABLE shop.ddl2",
        "CREATE INDEX i ON shop.ddl2 (name)", "DROP INDEX i ON shop.ddl2", "DROP TABLE shop.ddl2",
        "INSERT INTO shop.tail VALUES (2)",
    )  # fmt: skip
    account = (workload.PEER_USER, workload.PEER_PASSWORD)
    place = (server.host, str(server.port), *account, path.name, "4", "shop", "tail")
    done = subprocess.run([*command, *place], capture_output=True, text=True, timeout=300, check=True)
    theirs = [one for one in sorted_lines(done.stdout)["entry"] if one["type"] == "ROWDATA"]
    encoder = _core.LogEncoder([(str(path), 0, 0, None, [])], "canal-entry")
    lines = []
    while (step := encoder.read()) is not None:
        for statement in step if isinstance(step, list) else []:
            lines += [value for _, value in statement_messages("canal-entry", "{}", statement, [])]
    encoded = b"\n".join(map(base64.b64encode, lines))
    read = subprocess.run(command, input=encoded, capture_output=True, timeout=60, check=True)
    ours = sorted_lines(read.stdout.decode())["entry"]
    for our, their in zip(ours, theirs, strict=True):
        assert our["header"].pop("props")[0]["key"] == "curtGtid"
        their["header"].pop("props", None)
        assert our == their
