"""Every value of every type, in messages of each format, is what the server's SELECT shows."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.core import alltypes
from tests.core.logs import log_of, schema_of, select

from penstock import _core
from penstock.model.schema import TableSchema
from penstock.testing import servers

EPOCH = datetime.datetime(1970, 1, 1)
Row = dict[str, Any]


def messages(
    server: servers.MySqlServer, format: str, schema: TableSchema | None = None, **options: Any
) -> list[tuple[Any, Any]]:
    """Key and value of the messages in the newest file of the log. Numbers with a point are exact."""
    parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
    schemas = [] if schema is None else [schema.to_json()]
    encoder = _core.LogEncoder(parts, format, options=json.dumps(options), schemas=schemas)
    found = []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            found += [(loads(key), loads(value)) for _, key, value, _ in step.messages()]
    return found


def loads(text: bytes | None) -> Any:
    return None if text is None else json.loads(text, parse_float=decimal.Decimal)


@pytest.fixture(scope="module")
def written() -> Iterator[tuple[servers.MySqlServer, TableSchema, list[tuple[Any, ...]]]]:
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute(
            "SET time_zone = '+00:00', sql_mode = ''",
            "CREATE DATABASE d",
            alltypes.create_table("d.t"),
            "FLUSH BINARY LOGS",
            *alltypes.inserts("d.t"),
        )
        yield server, schema_of(server, "d.t"), select(server, alltypes.select("d.t"))


Written = tuple[servers.MySqlServer, TableSchema, list[tuple[Any, ...]]]
Judge = Callable[[Any, str, Any, bool], bool]
"""Whether a value of a message is what the server's text says: kind of the column, its definition, and
whether it may be null."""


def text_of(server: Any) -> Any:
    return server.decode() if isinstance(server, bytes) else server


def compare(rows: list[Row], written: Written, judge: Callable[[Any, Any, Any], bool]) -> None:
    _, schema, expected = written
    assert len(rows) == len(expected) == alltypes.ROWS
    names = ["id", *(sample.name for sample in alltypes.SAMPLES)]
    for row, texts in zip(rows, expected, strict=True):
        assert list(row) == names
        for name, text in zip(names, texts, strict=True):
            column = schema.column(name)
            assert judge(row[name], text_of(text), column), f"{name}: {row[name]!r}, the server: {text!r}"


def is_number(value: Any, text: str, column: Any) -> bool:
    kind = "<f" if column.type == "float" else "<d"
    return struct.pack(kind, float(value)) == struct.pack(kind, float(text))


def plain(value: Any, text: Any, column: Any) -> bool:
    if value is None or text is None:
        return value is None and text is None
    match column.type:
        case "float" | "double":
            return is_number(value, text, column)
        case kind if kind in ("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"):
            return bool(value == int(text))
        case _ if is_binary(column):
            return bool(base64.b64decode(value).hex().upper() == text)
        case _:
            return bool(value == text)


def is_binary(column: Any) -> bool:
    binary = column.type in ("binary", "varbinary", "geometry", "point") or column.type.endswith("blob")
    return binary or column.charset == "binary"


def maxwell(value: Any, text: Any, column: Any) -> bool:
    if text is not None:
        match column.type:
            case "decimal":
                return bool(decimal.Decimal(value) == decimal.Decimal(text))
            case "set":
                return bool(",".join(value) == text)
            case "json":
                return repr(value) == repr(loads(text.encode()))
            case "geometry" | "point":
                return isinstance(value, str)
    return plain(value, text, column)


def canal(value: Any, text: Any, column: Any) -> bool:
    if value is None or text is None:
        return value is None and text is None
    assert isinstance(value, str)
    if column.type in ("float", "double"):
        return is_number(value, text, column)
    if is_binary(column):
        return bool(value.encode("latin-1").hex().upper() == text)
    return bool(value == text)


def debezium(value: Any, text: Any, column: Any) -> bool:
    if text is None:
        return value is None
    match column.type:
        case "decimal":
            unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
            return unscaled == int(decimal.Decimal(text).scaleb(column.scale, decimal.Context(prec=80)))
        case "bit" if column.length == 1:
            return value is bool(int(text))
        case "bit":
            return int.from_bytes(base64.b64decode(value), "little") == int(text)
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
            return bool(value["srid"] == srid and base64.b64decode(value["wkb"]).hex().upper() == text[8:])
    return plain(value, text, column)


def six(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6}"


def test_plain_json_has_the_values_that_select_shows(written: Written) -> None:
    found = messages(written[0], "json")
    assert [key for key, _ in found] == [{"id": number + 1} for number in range(alltypes.ROWS)]
    compare([value["after"] for _, value in found], written, plain)


def test_maxwell_has_the_values_that_select_shows(written: Written) -> None:
    compare([value["data"] for _, value in messages(written[0], "maxwell")], written, maxwell)


def test_canal_has_the_values_that_select_shows_as_strings(written: Written) -> None:
    found = [value for _, value in messages(written[0], "canal", written[1])]
    compare([row for value in found for row in value["data"]], written, canal)
    expected = {column.name: column.column_type for column in written[1].columns}
    assert found[0]["mysqlType"] == expected


def test_debezium_has_the_values_that_select_shows(written: Written) -> None:
    compare([value["after"] for _, value in messages(written[0], "debezium")], written, debezium)


def test_definitions_of_the_catalog_give_the_same_messages_as_the_metadata_of_the_log(
    written: Written,
) -> None:
    for format in ("json", "maxwell", "debezium", "cloudevents"):
        assert messages(written[0], format, written[1]) == messages(written[0], format)


def test_debeziums_schema_fits_its_payload(written: Written) -> None:
    [(key, value), *_] = messages(written[0], "debezium", written[1], schemas=True)
    assert fits(key["schema"], key["payload"])
    assert fits(value["schema"], value["payload"])
    assert value["schema"]["name"] == "penstock.d.t.Envelope"
    types = {field["field"]: field for field in value["schema"]["fields"][1]["fields"]}
    assert types["c_datetime_6"]["name"] == "io.debezium.time.MicroTimestamp"
    assert types["c_dec_5_2"]["parameters"] == {"scale": "2", "connect.decimal.precision": "5"}


def fits(schema: Any, value: Any) -> bool:
    """Whether Connect's JSON converter could read the value with the schema."""
    if value is None:
        return bool(schema["optional"])
    match schema["type"]:
        case "struct":
            names = [field["field"] for field in schema["fields"]]
            assert names == list(value)
            return all(fits(field, value[field["field"]]) for field in schema["fields"])
        case "array":
            return all(fits(schema["items"], item) for item in value)
        case "string" | "bytes":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "float" | "double":
            return isinstance(value, int | decimal.Decimal)
        case kind:
            bits = int(kind.removeprefix("int"))
            # BIGINT UNSIGNED has more values than int64 (`bigint.unsigned.handling.mode`).
            return isinstance(value, int) and (bits == 64 or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1))


@pytest.mark.parametrize(
    ("options", "column", "expected"),
    [
        ({"decimal_handling_mode": "string"}, "p", "-12.50"),
        ({"decimal_handling_mode": "double"}, "p", decimal.Decimal("-12.5")),
        ({"bigint_unsigned_handling_mode": "precise"}, "u", "AP//////////"),
        *[
            ({"bigint_unsigned_handling_mode": "precise", "decimal_handling_mode": mode}, "u", "AP//////////")
            for mode in ("string", "double")
        ],
        ({}, "u", 2**64 - 1),
        ({"binary_handling_mode": "hex"}, "b", "fbff"),
        ({"binary_handling_mode": "base64-url-safe"}, "b", "-_8="),
        ({"time_precision_mode": "connect"}, "at", 1_709_251_199_123),
        ({"time_precision_mode": "microseconds"}, "at", 1_709_251_199_123_456),
        ({"time_precision_mode": "nanoseconds"}, "at", 1_709_251_199_123_456_000),
        ({"time_precision_mode": "isostring"}, "at", "2024-02-29T23:59:59.123456Z"),
        ({"time_precision_mode": "connect"}, "took", -3_600_500),
    ],
)
def test_debeziums_modes(mysql_modes: servers.MySqlServer, options: Any, column: str, expected: Any) -> None:
    [(_, value)] = messages(mysql_modes, "debezium", **options)
    assert value["after"][column] == expected


@pytest.fixture(scope="module")
def mysql_modes() -> Iterator[servers.MySqlServer]:
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, p DECIMAL(10,2), u BIGINT UNSIGNED, b VARBINARY(9),"
            " at DATETIME(6), took TIME(1), kind ENUM('a','b'), tags SET('x','y'))",
            "FLUSH BINARY LOGS",
            "INSERT INTO d.t VALUES (1, -12.5, 18446744073709551615, x'fbff', '2024-02-29 23:59:59.123456',"
            " '-01:00:00.5', 'b', 'x,y')",
        )
        yield server


def test_faithful_canal_has_ordinals_and_bits(mysql_modes: servers.MySqlServer) -> None:
    [(_, sane)], [(_, faithful)] = (
        messages(mysql_modes, "canal"),
        messages(mysql_modes, "canal", faithful=True),
    )
    names = ("kind", "tags", "p")
    assert [sane["data"][0][name] for name in names] == ["b", "x,y", "-12.50"]
    assert [faithful["data"][0][name] for name in names] == ["2", "3", "-12.50"]
