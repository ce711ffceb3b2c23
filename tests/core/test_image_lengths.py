"""Bytes that are left over or missing in a row image are an error, in every form of row events.

Each log has row events of one row, from a real server. Their images are cut and lengthened at every byte. No
column can be NULL, so a row has more bytes than are added.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.core.logs import ROWS, decode_range, events, log_of, schema_of

from penstock import _core
from penstock.model.schema import TableSchema
from penstock.testing import servers

PARTIAL_JSON = 39
ALL_ROWS = ROWS | {PARTIAL_JSON, 166, 167, 168}
V2, UPDATES = {30, 31, 32, PARTIAL_JSON}, {24, 31, PARTIAL_JSON, 167}
SERVERS: dict[str, Callable[[], servers.DatabaseServer]] = {
    "mysql": lambda: servers.MySqlServer(options={"binlog_row_value_options": "PARTIAL_JSON"}),
    "mysql57": lambda: servers.MySql57Server(options={"log_bin_use_v1_row_events": "ON"}),
    "mariadb": lambda: servers.MariaDb1011Server(options={"mysql56_temporal_format": "OFF"}),
    "compressed": lambda: servers.MariaDb1011Server(
        options={"log_bin_compress": "ON", "log_bin_compress_min_len": 10}
    ),
}
FORMS = {
    "mysql": {30, 39, 32},
    "mysql57": {23, 24, 25},
    "mariadb": {23, 24, 25},
    "compressed": {166, 167, 168},
}
"""The types of row events in each log: insert, update, delete."""

Written = tuple[str, bytes, TableSchema]


@pytest.fixture(
    scope="module", params=["mysql", pytest.param("mysql57", marks=pytest.mark.slow), "mariadb", "compressed"]
)
def written(request: pytest.FixtureRequest) -> Written:
    document = "JSON" if request.param == "mysql" else "TEXT"
    with SERVERS[request.param]() as server:
        server.execute(
            "CREATE DATABASE d",
            f"CREATE TABLE d.t (id INT PRIMARY KEY, big BIGINT NOT NULL, v VARCHAR(20) NOT NULL, "
            f"doc {document} NOT NULL, at DATETIME(2) NOT NULL, price DECIMAL(9,2) NOT NULL, "
            "last TIME(3) NOT NULL)",
            "FLUSH BINARY LOGS",
            """INSERT INTO d.t VALUES (1, 5, 'abc', '{"a": "01234567890123456789"}', '2024-01-02 03:04:05',
               1.5, '1:2:3.456')""",
            "UPDATE d.t SET doc = JSON_SET(doc, '$.a', 'short'), v = 'def'",
            "DELETE FROM d.t",
        )
        path, _ = log_of(server)
        assert {event.kind for event in events(path)} & ALL_ROWS == FORMS[request.param]
        return request.param, Path(path).read_bytes(), schema_of(server, "d.t")


def changed(data: bytes, start: int, body: bytes) -> bytes:
    """The log with another body in the event at `start`, up to that event."""
    head = bytearray(data[start : start + 19])
    struct.pack_into("<I", head, 9, 19 + len(body) + 4)
    event = bytes(head) + body
    return data[:start] + event + struct.pack("<I", zlib.crc32(event))


def decoded(layout: str) -> Callable[[Path, TableSchema], int]:
    def read(path: Path, schema: TableSchema) -> int:
        rows: int = decode_range(schema, str(path), 0, path.stat().st_size, layout=layout).num_rows
        return rows

    return read


def encoded(path: Path, schema: TableSchema) -> int:
    parts: list[_core.LogPart] = [(str(path), 0, 0, None, [])]
    encoder = _core.LogEncoder(parts, "json", options="{}", schemas=[schema.to_json()])
    rows = 0
    while (step := encoder.read()) is not None:
        rows += len(step.messages()) if isinstance(step, _core.EncodedMessages) else 0
    return rows


def inspected(path: Path, schema: TableSchema) -> int:
    inspector = _core.Inspector(str(path), schemas=[schema.to_json()])
    return len(inspector.next_lines(1000) or []) + len(inspector.next_lines(1000) or [])


READERS = {
    "changelog": decoded("changelog"),
    "latest": decoded("latest"),
    "encode": encoded,
    "inspect": inspected,
}


@pytest.mark.parametrize("reader", READERS)
def test_images_of_another_length_are_an_error(written: Written, reader: str, tmp_path: Path) -> None:
    kind, data, schema = written
    if kind == "compressed" and reader in ("changelog", "latest"):
        return  # relay logs have these events unpacked
    path, read = tmp_path / "log", READERS[reader]
    path.write_bytes(data)
    assert read(path, schema) >= (1 if reader == "latest" else 3)
    chance = random.Random(7)
    for event in [event for event in events(str(path)) if event.kind in ALL_ROWS]:
        body = data[event.offset + 19 : event.end - 4]
        head = 6 + 2 + (2 if event.kind in V2 else 0) + 1 + (2 if event.kind in UPDATES else 1)
        cuts = [body[:size] for size in range(head + 1, len(body))]
        added = [body + bytes([fill]) * size for size in (1, 2, 3, 7, 12, 20) for fill in (0, 255)]
        added += [body + chance.randbytes(size) for size in range(1, 25)]
        for other in [*cuts, *added]:
            path.write_bytes(changed(data, event.offset, other))
            try:
                rows = read(path, schema)
            except _core.DecodeError:
                continue
            raise AssertionError(f"{rows} rows of an event of type {event.kind} with {len(other)} bytes")
