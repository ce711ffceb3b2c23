"""Rows of a snapshot become the messages that their inserts would have become, in every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.core import alltypes
from tests.core.logs import log_of, schema_of

from penstock import _core
from penstock.model.chunk import Chunk
from penstock.model.schema import EXACT_TYPES, Column, TableId, TableSchema
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.testing import servers

Written = tuple[servers.MySqlServer, TableSchema, list[pa.RecordBatch]]


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute(
            "SET time_zone = '+00:00', sql_mode = ''",
            "CREATE DATABASE d",
            alltypes.create_table("d.t"),
            "FLUSH BINARY LOGS",
            *alltypes.inserts("d.t"),
        )
        schema = schema_of(server, "d.t")
        reader = MySqlChunkReader(server.connect(), types=EXACT_TYPES)
        yield server, schema, list(reader.read(schema, Chunk(schema.table, 0, None, None)))
        reader.close()


def inserted(written: Written, format: str, options: dict[str, Any]) -> list[tuple[Any, Any]]:
    server, schema, _ = written
    parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
    encoder = _core.LogEncoder(parts, format, options=json.dumps(options), schemas=[schema.to_json()])
    found = []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            found += [(key, json.loads(value or b"null")) for _, key, value, _ in step.messages()]
    return found


def snapshot(
    schema: TableSchema, batches: list[pa.RecordBatch], format: str, options: dict[str, Any]
) -> list[tuple[Any, Any]]:
    encoder = _core.RowEncoder(schema.to_json(), format, options=json.dumps(options))
    found: list[tuple[Any, Any]] = []
    for batch in batches:
        step = encoder.encode(
            batch, at_us=1_700_000_000_123_456, place="f.1:77", sequence=900, first_row=len(found)
        )
        found += [(key, json.loads(value or b"null")) for _, key, value, _ in step.messages()]
    return found


def row_of(format: str, value: dict[str, Any]) -> list[Any]:
    match format:
        case "maxwell":
            return [value["data"]]
        case "canal":
            return [value["mysqlType"], value["sqlType"], value["pkNames"]]
        case "cloudevents":
            return [value["data"]["after"]]
    value = value.get("payload", value)
    return [value["before"], value["after"]]


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("json", {}),
        ("json", {"decimal": "number"}),
        ("maxwell", {}),
        ("debezium", {"schemas": True}),
        ("debezium", {"time_precision_mode": "connect", "decimal_handling_mode": "string"}),
        ("cloudevents", {}),
    ],
)
def test_a_row_of_a_snapshot_is_written_as_its_insert(
    written: Written, format: str, options: dict[str, Any]
) -> None:
    expected = inserted(written, format, options)
    found = snapshot(written[1], written[2], format, options)
    assert len(expected) == len(found) == alltypes.ROWS
    for (key, value), (other_key, other) in zip(expected, found, strict=True):
        assert other_key == key
        for mine, theirs in zip(row_of(format, other), row_of(format, value), strict=True):
            differing = [name for name in theirs or () if mine[name] != theirs[name]]
            assert (mine is None) == (theirs is None) and not differing


def test_each_format_says_in_its_own_way_that_a_row_was_read(written: Written) -> None:
    def first(format: str) -> dict[str, Any]:
        value: dict[str, Any] = snapshot(written[1], written[2], format, {})[0][1]
        return value

    change = first("debezium")
    assert (change["op"], change["source"]["snapshot"]) == ("r", "true")
    assert (change["source"]["file"], change["source"]["pos"], change["ts_ms"]) == ("f.1", 77, 1700000000123)
    change = first("maxwell")
    assert list(change) == ["database", "table", "type", "ts", "data"]
    assert (change["type"], change["ts"]) == ("bootstrap-insert", 1700000000)
    change = first("json")
    assert (change["op"], change["sequence"], change["before"]) == ("r", 900, None)
    change = first("cloudevents")
    assert (change["iodebeziumop"], change["iodebeziumsnapshot"]) == ("r", "true")


def test_rows_of_a_table_without_a_key_have_keys_of_their_own() -> None:
    schema = TableSchema(TableId("d", "keyless"), (Column("n", "int"),), ())
    batch = pa.record_batch({"n": pa.array([1, 1, 1], pa.int32())})
    keys = {key for key, _ in snapshot(schema, [batch, batch], "maxwell", {})}
    assert len(keys) == 6
