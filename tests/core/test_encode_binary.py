"""Avro and Protobuf: other people's readers get the row that the server's SELECT shows."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.core import alltypes
from tests.core.logs import log_of, schema_of, select
from tests.core.test_encode import compare, is_binary, is_number, plain, six

from penstock import _core
from penstock.model.schema import TableSchema
from penstock.testing import servers

EPOCH = datetime.datetime(1970, 1, 1)
PRECISE = {"bigint_unsigned_handling_mode": "precise"}

Written = tuple[servers.MySqlServer, TableSchema, list[tuple[Any, ...]]]
Message = tuple[int | None, bytes | None, bytes | None, int]
Read = Callable[[bytes | None], Any]


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
        yield server, schema_of(server, "d.t"), select(server, alltypes.select("d.t"))


def encoded(
    server: servers.MySqlServer, format: str, **options: Any
) -> tuple[list[Message], list[dict[str, Any]]]:
    """The messages in the newest file of the log, and their schemas."""
    parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
    encoder = _core.LogEncoder(parts, format, options=json.dumps(options))
    found: list[Message] = []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            found += step.messages()
    return found, encoder.message_schemas


def avro_reader(schemas: list[dict[str, Any]]) -> Read:
    fastavro = import_module("fastavro")
    parsed = {one["id"]: fastavro.parse_schema(json.loads(one["schema"])) for one in schemas}

    def read(message: bytes | None) -> Any:
        if message is None:
            return None
        magic, id = struct.unpack(">bI", message[:5])
        assert magic == 0
        rest = io.BytesIO(message[5:])
        value = fastavro.schemaless_reader(rest, parsed[id], None)
        assert rest.read() == b""
        return value

    return read


DECIMAL = """syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""


def protobuf_reader(schemas: list[dict[str, Any]], folder: Path) -> Read:
    """Compiles the schemas with Google's own compiler."""
    import_module("grpc_tools")
    descriptor_pb2, descriptor_pool, message_factory = (
        import_module(f"google.protobuf.{name}")
        for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
    )

    (folder / "confluent" / "type").mkdir(parents=True)
    (folder / "confluent" / "type" / "decimal.proto").write_text(DECIMAL)
    classes = {}
    for one in schemas:
        name = f"schema_{one['id']}.proto"
        (folder / name).write_text(one["schema"])
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-o{folder}/{name}.set",
             "--include_imports", str(folder / name)],
            check=True,
        )  # fmt: skip
        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString((folder / f"{name}.set").read_bytes())
        for file in files.file:
            pool.Add(file)
        classes[one["id"]] = message_factory.GetMessageClass(pool.FindMessageTypeByName(one["name"]))

    def read(message: bytes | None) -> Any:
        if message is None:
            return None
        magic, id, index = struct.unpack(">bIb", message[:6])
        assert (magic, index) == (0, 0)
        return as_dict(classes[id].FromString(message[6:]))

    return read


def as_dict(message: Any) -> Any:
    """A message as a dict. What is optional and absent is None."""
    assert len(import_module("google.protobuf.unknown_fields").UnknownFieldSet(message)) == 0
    if message.DESCRIPTOR.full_name == "confluent.type.Decimal":
        return decimal_of(message.value, message.scale)
    found = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            value = [as_dict(item) if field.message_type else item for item in value]
        elif field.has_presence and not message.HasField(field.name):
            value = None
        elif field.message_type:
            value = as_dict(value)
        found[field.name] = value
    return found


def decimal_of(unscaled: bytes, scale: int) -> decimal.Decimal:
    return decimal.Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(
        -scale, decimal.Context(prec=80)
    )


def judge(value: Any, text: Any, column: Any) -> bool:
    if text is None:
        return value is None
    match column.type:
        case "decimal":
            return bool(value == decimal.Decimal(text))
        case "bigint" if column.unsigned:
            return bool(value == decimal.Decimal(text))
        case "float" | "double":
            return is_number(value, text, column)
        case "bit" if column.length == 1:
            return value is bool(int(text))
        case "bit":
            return int.from_bytes(value, "little") == int(text)
        case "date" | "datetime" | "timestamp" if "-00" in text or text.startswith("0000"):
            first = "1970-01-01T00:00:00Z" if column.type == "timestamp" else 0
            return bool(value == (None if column.nullable else first))
        case "date":
            return EPOCH.date() + datetime.timedelta(days=value) == datetime.date.fromisoformat(text)
        case "datetime":
            unit = (
                datetime.timedelta(milliseconds=1) if column.fsp <= 3 else datetime.timedelta(microseconds=1)
            )
            return bool((EPOCH + value * unit).isoformat(" ", "microseconds") == six(text))
        case "timestamp":
            return bool(value == text.replace(" ", "T") + "Z")
        case "time":
            hours, minutes, seconds = text.lstrip("-").split(":")
            whole = (int(hours) * 60 + int(minutes)) * 60 * 1_000_000 + int(
                decimal.Decimal(seconds) * 1_000_000
            )
            return bool(value == (-whole if text.startswith("-") else whole))
        case "geometry" | "point":
            srid = int.from_bytes(bytes.fromhex(text)[:4], "little") or None
            if "x" in value:
                assert (value["x"], value["y"]) == (3.0, -4.0)
            return bool(value["srid"] == srid and value["wkb"].hex().upper() == text[8:])
        case _ if is_binary(column):
            return bool(value.hex().upper() == text)
    return plain(value, text, column)


def test_fastavro_reads_the_row_that_select_shows(written: Written) -> None:
    messages, schemas = encoded(written[0], "avro", **PRECISE)
    read = avro_reader(schemas)
    values = [(read(key), read(value)) for _, key, value, _ in messages]
    assert [key for key, _ in values] == [{"id": number + 1} for number in range(alltypes.ROWS)]
    compare([value["after"] for _, value in values], written, judge)
    assert {value["op"] for _, value in values} == {"c"}


def test_googles_protobuf_reads_the_row_that_select_shows(written: Written, tmp_path: Path) -> None:
    messages, schemas = encoded(written[0], "protobuf", **PRECISE)
    read = protobuf_reader(schemas, tmp_path)
    values = [(read(key), read(value)) for _, key, value, _ in messages]
    assert [key for key, _ in values] == [{"id": number + 1} for number in range(alltypes.ROWS)]
    compare([value["after"] for _, value in values], written, judge)


MODES: list[dict[str, str]] = [
    {"time_precision_mode": "isostring", "decimal_handling_mode": "string", "binary_handling_mode": "base64"},
    {"time_precision_mode": "nanoseconds", "decimal_handling_mode": "double", "binary_handling_mode": "hex"},
    {"time_precision_mode": "microseconds", "binary_handling_mode": "base64-url-safe"},
]
CHANGES = (
    """INSERT INTO d.m VALUES (1, -12.5, 18446744073709551615, x'fbff', '2024-02-29 23:59:59.123456',
       '-01:00:00.5', 'b', 'x,y', '2024-02-29')""",
    "INSERT INTO d.m (id) VALUES (2), (3)",
    "UPDATE d.m SET u = 5 WHERE id = 2",
    "UPDATE d.m SET id = 4 WHERE id = 3",
    "DELETE FROM d.m WHERE id = 1",
)


@pytest.fixture(scope="module")
def changed() -> Iterator[servers.MySqlServer]:
    with servers.MySqlServer({"binlog_row_metadata": "FULL", "binlog_rows_query_log_events": "ON"}) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.m (id INT PRIMARY KEY, p DECIMAL(10,2), u BIGINT UNSIGNED, b VARBINARY(9),"
            " at DATETIME(6), took TIME(1), kind ENUM('a','b'), tags SET('x','y'), day DATE)",
            "FLUSH BINARY LOGS",
            *CHANGES,
        )
        yield server


@pytest.mark.parametrize("format", ["avro", "protobuf"])
@pytest.mark.parametrize("options", MODES)
def test_messages_say_what_debeziums_json_says(
    changed: servers.MySqlServer, format: str, options: dict[str, str], tmp_path: Path
) -> None:
    more: dict[str, Any] = {**PRECISE, "include_query": True, "provide_transaction_metadata": True, **options}
    messages, schemas = encoded(changed, format, **more)
    read = avro_reader(schemas) if format == "avro" else protobuf_reader(schemas, tmp_path)
    expected, _ = encoded(changed, "debezium", **more)
    assert len(messages) == len(expected) == 19
    empty: Any = [] if format == "protobuf" else None
    for (table, key, value, offset), (same, json_key, json_value, json_offset) in zip(
        messages, expected, strict=True
    ):
        assert (table, offset) == (same, json_offset)
        assert read(key) == json.loads(json_key or b"")
        wanted = None if json_value is None else json.loads(json_value)
        if wanted is not None and "data_collections" in wanted and wanted["data_collections"] is None:
            wanted["data_collections"] = empty
        assert plainly(read(value)) == plainly(wanted)


def plainly(value: Any) -> Any:
    """Values of Avro and Protobuf as Debezium's JSON has them, for the columns of the test."""
    if isinstance(value, dict):
        return {name: plainly(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plainly(item) for item in value]
    if isinstance(value, decimal.Decimal):
        return {"-12.50": "+x4=", "18446744073709551615": "AP//////////", "5": "BQ=="}[str(value)]
    return value


def test_a_number_that_int64_cannot_hold_is_refused(changed: servers.MySqlServer) -> None:
    for format in ("avro", "protobuf"):
        with pytest.raises(_core.SchemaMismatch, match=r"bigint\.unsigned\.handling\.mode = precise"):
            encoded(changed, format)


def test_ids_come_from_the_caller_and_its_errors_come_out(changed: servers.MySqlServer) -> None:
    parts: list[_core.LogPart] = [(log_of(changed)[0], 0, 0, None, [])]
    asked: list[dict[str, Any]] = []

    def ids(schema: dict[str, Any]) -> int:
        asked.append(schema)
        return 70_000 + len(asked)

    encoder = _core.LogEncoder(parts, "avro", options=json.dumps(PRECISE), schema_ids=ids)
    step = encoder.read()
    assert isinstance(step, _core.EncodedMessages)
    _, key, value, _ = step.messages()[0]
    assert (value or b"")[:5] == struct.pack(">bI", 0, 70_001)
    assert (key or b"")[:5] == struct.pack(">bI", 0, 70_002)
    assert [(one["table"], one["is_key"], one["name"]) for one in asked] == [
        (("d", "m"), False, "penstock.d.m.Envelope"),
        (("d", "m"), True, "penstock.d.m.Key"),
    ]

    def fails(schema: dict[str, Any]) -> int:
        raise KeyError(schema["name"])

    encoder = _core.LogEncoder(parts, "avro", options=json.dumps(PRECISE), schema_ids=fails)
    with pytest.raises(KeyError, match="Envelope"):
        encoder.read()


def test_columns_that_the_format_cannot_tell_apart_are_named() -> None:
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute(
            "CREATE DATABASE d", "CREATE TABLE d.`1-x` (`a b` INT PRIMARY KEY, `a-b` INT)",
            "FLUSH BINARY LOGS", "INSERT INTO d.`1-x` VALUES (1, 2)",
        )  # fmt: skip
        for format in ("avro", "protobuf"):
            with pytest.raises(_core.SchemaMismatch, match="two columns have the name `a_b`"):
                encoded(server, format)
