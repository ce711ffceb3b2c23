"""A row that a snapshot reads has the same bytes in a message as the same row in the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.core import alltypes
from tests.core.logs import log_of, schema_of

from penstock import _core
from penstock.encode.bootstrap import bootstrap_message
from penstock.model.chunk import Chunk
from penstock.model.schema import DEFAULT_TYPES, TableSchema, TypeOptions
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.testing import servers

TEXT_DATES = TypeOptions(zero_dates="text")
PARTS = {
    "json": (b'"after":', b',"ts_us"'),
    "maxwell": (b'"data":', b"}"),
    "debezium": (b'"after":', b',"source"'),
    "cloudevents": (b'"after":', b"}}"),
    "canal": (b'"data":', b',"database"'),
}
"""What is before and behind the row in a message of each format."""
READ_US = 1_700_000_000_123_456


def rows(server: servers.MySqlServer, schema: TableSchema, types: TypeOptions) -> list[pa.RecordBatch]:
    reader = MySqlChunkReader(server.connect(), types=types)
    try:
        return list(reader.read(schema, Chunk(schema.table, 0, None, None)))
    finally:
        reader.close()


def logged(server: servers.MySqlServer, format: str, schema: TableSchema, options: str) -> list[Any]:
    parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
    encoder = _core.LogEncoder(parts, format, options=options, schemas=[schema.to_json()])
    found = []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            found += step.messages()
    return found


def row_of(format: str, value: bytes) -> bytes:
    before, behind = PARTS[format]
    start = value.index(before)
    return value[start : value.index(behind, start) if format != "maxwell" else len(value)]


Written = tuple[servers.MySqlServer, TableSchema]


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    with servers.MySqlServer() as server:
        server.execute(
            "SET time_zone = '+00:00', sql_mode = ''",
            "CREATE DATABASE d",
            alltypes.create_table("d.t"),
            "FLUSH BINARY LOGS",
            *alltypes.inserts("d.t"),
        )
        yield server, schema_of(server, "d.t")


@pytest.mark.parametrize("format", PARTS)
@pytest.mark.parametrize(
    "options", [{}, {"time_precision_mode": "isostring", "decimal_handling_mode": "string"}]
)
def test_rows_of_a_snapshot_are_written_as_those_of_the_log(
    written: Written, format: str, options: dict[str, str]
) -> None:
    server, schema = written
    if options and format not in ("debezium", "cloudevents"):
        pytest.skip("options of Debezium")
    text = json.dumps({"single_rows": True} if format == "canal" else options)
    expected = logged(server, format, schema, text)
    encoder = _core.RowEncoder(schema.to_json(), format, options=text)
    found = [
        message
        for batch in rows(server, schema, TEXT_DATES)
        for message in encoder.encode(batch, at_us=READ_US).messages()
    ]
    assert len(found) == len(expected) == alltypes.ROWS
    for (_, key, value, _), (_, logged_key, logged_value, _) in zip(found, expected, strict=True):
        assert key == logged_key is not None
        assert row_of(format, value or b"") == row_of(format, logged_value)


def test_other_type_options_lose_nothing_but_parts_of_dates(written: Written) -> None:
    server, schema = written
    types = TypeOptions(bigint_unsigned="string", decimal="string", time="micros")
    for chosen in (DEFAULT_TYPES, types):
        encoder = _core.RowEncoder(schema.to_json(), "json")
        found = [
            json.loads(value or b"")["after"]
            for batch in rows(server, schema, chosen)
            for _, _, value, _ in encoder.encode(batch, at_us=READ_US).messages()
        ]
        expected = [json.loads(value)["after"] for _, _, value, _ in logged(server, "json", schema, "{}")]
        for row, same in zip(found, expected, strict=True):
            differing = {name for name in row if row[name] != same[name]}
            assert differing <= {"c_zero_date", "c_zero_datetime"}
            assert all(set(row[name]) <= set("0-: .") for name in differing)


@pytest.mark.parametrize(
    "types", [TypeOptions(decimal="double"), TypeOptions(binary="hex"), TypeOptions(binary="base64")]
)
def test_type_options_that_lose_values_are_refused(written: Written, types: TypeOptions) -> None:
    server, schema = written
    [batch, *_] = rows(server, schema, types)
    with pytest.raises(_core.SchemaMismatch, match="type option that loses values"):
        _core.RowEncoder(schema.to_json(), "json").encode(batch, at_us=READ_US)


@pytest.fixture(scope="module")
def small(written: Written) -> tuple[TableSchema, pa.RecordBatch]:
    server, _ = written
    server.execute(
        "CREATE TABLE d.small (id INT PRIMARY KEY, name VARCHAR(9))",
        "INSERT INTO d.small VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    )
    schema = schema_of(server, "d.small")
    [batch] = rows(server, schema, DEFAULT_TYPES)
    return schema, batch


def encode(small: tuple[TableSchema, pa.RecordBatch], format: str, options: Any, **read: Any) -> list[Any]:
    schema, batch = small
    encoder = _core.RowEncoder(schema.to_json(), format, options=json.dumps(options))
    return [
        (json.loads(value), sequence)
        for _, _, value, sequence in encoder.encode(batch, at_us=READ_US, **read).messages()
        if value
    ]


def test_debezium_says_which_rows_are_the_first_and_the_last(
    small: tuple[TableSchema, pa.RecordBatch],
) -> None:
    found = encode(
        small, "debezium", {"provide_transaction_metadata": True}, first="first", last="last", place="b.7:4"
    )  # fmt: skip
    values = [value for value, _ in found]
    assert [value["source"]["snapshot"] for value in values] == ["first", "true", "last"]
    assert [value["op"] for value in values] == ["r"] * 3
    assert [value["before"] for value in values] == [None] * 3
    assert [value["transaction"] for value in values] == [None] * 3
    source = values[0]["source"]
    assert (source["file"], source["pos"], source["ts_us"]) == ("b.7", 4, READ_US)
    assert (values[0]["ts_ms"], source["gtid"]) == (READ_US // 1000, None)


def test_maxwell_bootstraps(small: tuple[TableSchema, pa.RecordBatch]) -> None:
    options = {"output_binlog_position": True, "output_gtid_position": True, "output_server_id": True}
    [(first, _), *_] = encode(small, "maxwell", options)
    assert first == {
        "database": "d", "table": "small", "type": "bootstrap-insert", "ts": READ_US // 1_000_000,
        "data": {"id": 1, "name": "a"},
    }  # fmt: skip
    key, value = bootstrap_message(small[0], "start", at_us=READ_US)
    assert value == b'{"database":"d","table":"small","type":"bootstrap-start","ts":1700000000,"data":{}}'
    assert key == b'{"database":"d","table":"small","pk.id":null}'
    key, _ = bootstrap_message(small[0], "complete", at_us=1, options='{"kafka_key_format": "array"}')
    assert key == b'["d","small",[{"id":null}]]'


def test_rows_have_the_sequence_that_the_batch_says(small: tuple[TableSchema, pa.RecordBatch]) -> None:
    schema, batch = small
    assert [sequence for _, sequence in encode(small, "json", {}, sequence=7)] == [7, 7, 7]
    numbered = batch.append_column("_sequence", pa.array([4, 5, 6], pa.int64()))
    found = encode((schema, numbered), "json", {}, sequence=7)
    assert [sequence for _, sequence in found] == [4, 5, 6]
    assert {value["op"] for value, _ in found} == {"r"}


def test_canal_has_the_rows_of_a_batch_in_one_message_unless_asked_for_single_ones(
    small: tuple[TableSchema, pa.RecordBatch],
) -> None:
    [(value, _)] = encode(small, "canal", {})
    assert (value["type"], value["isDdl"], value["old"]) == ("INSERT", False, None)
    assert [row["id"] for row in value["data"]] == ["1", "2", "3"]
    single = encode(small, "canal", {"single_rows": True})
    assert [row["id"] for value, _ in single for row in value["data"]] == ["1", "2", "3"]
    assert len(single) == 3


def test_a_batch_without_a_column_is_refused(small: tuple[TableSchema, pa.RecordBatch]) -> None:
    schema, batch = small
    with pytest.raises(_core.SchemaMismatch, match="column `name` is missing"):
        encode((schema, batch.drop_columns(["name"])), "json", {})
