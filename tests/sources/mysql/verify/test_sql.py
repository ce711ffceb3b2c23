"""The server's hash of a row and the core's hash of the same row in Arrow are one number, for every type."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock import _core
from penstock.model.buckets import Buckets, HashBuckets, KeyExtent, RangeBuckets
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.verify import sql
from penstock.testing.servers import Database
from penstock.verify.plan import choose_buckets

UTC = dt.timezone.utc
FIRST_SECOND = dt.datetime(1970, 1, 1, 0, 0, 1, 0, UTC)
DAY = dt.datetime(2024, 2, 29, 23, 59, 59, 123456)

# Column definition, and values as (SQL literal, Python value).
TYPES: list[tuple[str, list[tuple[str, Any]]]] = [
    ("tinyint", [("-128", -128), ("127", 127), ("NULL", None)]),
    ("tinyint unsigned", [("0", 0), ("255", 255)]),
    ("smallint", [("-32768", -32768)]),
    ("mediumint", [("-8388608", -8388608), ("8388607", 8388607)]),
    ("mediumint unsigned", [("16777215", 16777215)]),
    ("int", [("-2147483648", -2147483648)]),
    ("int(10) unsigned zerofill", [("7", 7), ("4294967295", 4294967295)]),
    ("bigint", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("bigint unsigned", [("18446744073709551615", Decimal(2**64 - 1)), ("0", Decimal(0))]),
    ("decimal(10,2)", [("-0.05", Decimal("-0.05")), ("12345678.90", Decimal("12345678.90"))]),
    ("decimal(10,2) zerofill", [("1.5", Decimal("1.50"))]),
    ("decimal(38,0)", [("9" * 38, Decimal("9" * 38)), ("-1", Decimal(-1))]),
    ("decimal(65,30)", [("-" + "9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30)]),
    ("float", [("0.1", 0.1), ("-1e-38", -1e-38), ("16777216", 16777216.0), ("-0e0", -0.0)]),
    (
        "double",
        [
            ("0.1", 0.1), ("1.7976931348623157e308", 1.7976931348623157e308), ("1e15", 1e15),
            ("1086000411525690.5", 1086000411525690.5), ("-123456789012345680", -123456789012345680.0),
            ("2.5e-14", 2.5e-14), ("1e-15", 1e-15),
            ("-0e0", -0.0), ("1e22", 1e22), ("100", 100.0),
        ],
    ),
    ("double(8,3)", [("1.5", 1.5)]),
    ("bit(1)", [("b'1'", 1), ("b'0'", 0)]),
    ("bit(64)", [("18446744073709551615", 2**64 - 1)]),
    ("year", [("2024", 2024), ("0", 0)]),
    ("date", [("'2024-02-29'", dt.date(2024, 2, 29)), ("'0001-01-01'", dt.date(1, 1, 1))]),
    ("date", [("'9999-12-31'", dt.date.max), ("'0000-00-00'", None), ("'2024-00-10'", None)]),
    ("date", [("'0000-05-05'", None), ("'2024-02-31'", None)]),
    ("datetime", [("'2024-02-29 23:59:59'", DAY.replace(microsecond=0)), ("'0000-00-00'", None)]),
    ("datetime(6)", [("'2024-02-29 23:59:59.123456'", DAY), ("'1000-01-01'", dt.datetime(1000, 1, 1))]),
    ("datetime(2)", [("'1969-12-31 23:59:59.99'", dt.datetime(1969, 12, 31, 23, 59, 59, 990000))]),
    ("timestamp(3) null", [("'2038-01-19 03:14:07.999'", dt.datetime(2038, 1, 19, 3, 14, 7, 999000, UTC))]),
    ("timestamp null", [("'0000-00-00'", None), ("'1970-01-01 00:00:01'", FIRST_SECOND)]),
    ("time(6)", [("'-838:59:59'", "-838:59:59.000000"), ("'838:59:58.5'", "838:59:58.500000")]),
    ("time", [("'-00:00:01'", "-00:00:01"), ("'23:59:59'", "23:59:59")]),
    ("char(10)", [("'ab  '", "ab"), ("''", "")]),
    ("varchar(50)", [("'a|b:~ '", "a|b:~ "), ("'~'", "~"), ("'käse 🧀'", "käse 🧀"), ("NULL", None)]),
    ("varchar(50) character set latin1", [("'käse €'", "käse €")]),
    ("varchar(50) character set utf16", [("'käse 🧀'", "käse 🧀")]),
    ("varchar(50) character set sjis", [("'日本'", "日本")]),
    ("text", [("repeat('ä', 10000)", "ä" * 10000), ("''", "")]),
    ("longtext character set ucs2", [("'日本'", "日本")]),
    ("binary(4)", [("x'00ff'", b"\x00\xff\x00\x00"), ("x'20'", b" \x00\x00\x00")]),
    ("varbinary(8)", [("x'00ff00'", b"\x00\xff\x00"), ("''", b"")]),
    ("blob", [("x'00ff7c'", b"\x00\xff\x7c"), ("''", b"")]),
    ("enum('a','b|c','ü')", [("'ü'", "ü"), ("'b|c'", "b|c"), ("0", "")]),
    ("set('a','b','ü') character set latin1", [("'a,ü'", "a,ü"), ("''", "")]),
    ("json", [("'{\"b\": [1, 2.50, null], \"a\": \"ü\"}'", '{"a": "ü", "b": [1, 2.5, null]}'), ("'1'", "1")]),
]  # fmt: skip


def arrow_value(field: pa.Field, value: Any) -> Any:
    if isinstance(value, int) and pa.types.is_decimal(field.type):
        return Decimal(value)
    if pa.types.is_boolean(field.type):
        return bool(value)
    if isinstance(value, int) and pa.types.is_binary(field.type):
        return value.to_bytes(8, "big")
    return value


def load(
    mysql: Database, definition: str, values: list[tuple[str, Any]]
) -> tuple[TableSchema, pa.RecordBatch]:
    statements = ["SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'", "DROP TABLE IF EXISTS t"]
    statements += [f"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v {definition}) CHARSET utf8mb4"]
    statements += [f"INSERT INTO t (v) VALUES ({literal})" for literal, _ in values]
    mysql.execute(*statements)
    with mysql.connect() as connection:
        schema = read_table(connection, TableId(mysql.name, "t"))
    assert schema is not None
    arrow = _core.arrow_schema(schema.to_json(), "rows")
    column = [arrow_value(arrow.field("v"), value) for _, value in values]
    ids = list(range(1, len(values) + 1))
    return schema, pa.RecordBatch.from_arrays(
        [pa.array(ids, arrow.field("id").type), pa.array(column, arrow.field("v").type)], schema=arrow
    )


@pytest.mark.parametrize(("definition", "values"), TYPES, ids=[definition for definition, _ in TYPES])
def test_server_and_core_hash_a_row_alike(
    flavor_database: Database, definition: str, values: list[tuple[str, Any]]
) -> None:
    if definition == "json" and flavor_database.query("SELECT VERSION() LIKE '%MariaDB%'") == [(1,)]:
        values = [(literal, literal[1:-1]) for literal, _ in values]  # there it is text
    schema, batch = load(flavor_database, definition, values)
    names = [column.name for column in schema.columns]
    with flavor_database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(
            f"SELECT {sql.text(schema.columns)}, {sql.row_hash(schema.columns)} FROM t ORDER BY id"
        )
        rows = cursor.fetchall()
    texts = [row[0].decode() if isinstance(row[0], bytes) else row[0] for row in rows]
    assert _core.row_texts(schema.to_json(), batch, names).to_pylist() == texts
    assert _core.row_hashes(schema.to_json(), batch, names).to_pylist() == [int(row[1]) for row in rows]


def test_server_and_core_put_a_key_into_the_same_bucket(flavor_database: Database) -> None:
    numbers = [-(2**63), -100, -99, -1, 0, 1, 99, 100, 2**63 - 1]
    schema, batch = load(flavor_database, "bigint", [(str(number), number) for number in numbers])
    columns = (schema.column("v"),)
    for buckets, share in (
        (RangeBuckets("v", 100), {"width": 100}),
        (RangeBuckets("v", 2), {"width": 2}),
        (HashBuckets(columns, 7), {"count": 7}),
    ):
        assert_in_the_same_bucket(flavor_database, schema, batch, numbers, buckets, share)


def test_unsigned_keys_may_lie_as_far_apart_as_can_be(flavor_database: Database) -> None:
    numbers = [0, 7, 2**62 - 1, 2**62, 2**63, 2**64 - 1]
    schema, batch = load(flavor_database, "bigint unsigned", [(str(n), Decimal(n)) for n in numbers])
    buckets = choose_buckets(replace(schema, key=("v",)), KeyExtent(0, 2**64 - 1, len(numbers)))
    assert isinstance(buckets, RangeBuckets)
    share = {"width": buckets.width}
    assert_in_the_same_bucket(flavor_database, schema, batch, numbers, buckets, share)


def assert_in_the_same_bucket(
    server: Database,
    schema: TableSchema,
    batch: pa.RecordBatch,
    numbers: list[int],
    buckets: Buckets,
    share: dict[str, Any],
) -> None:
    expected = [int(row[0]) for row in server.query(f"SELECT {sql.bucket(buckets)} FROM t ORDER BY id")]
    assert _core.row_buckets(schema.to_json(), batch, ["v"], **share).to_pylist() == expected
    assert {bucket for number in numbers for bucket in buckets.numbers([str(number)])} == set(expected)
    for bucket in set(expected):
        found = server.query(f"SELECT v FROM t WHERE {sql.in_buckets(buckets, [bucket])} ORDER BY id")
        assert [row[0] for row in found] == [n for n, b in zip(numbers, expected, strict=True) if b == bucket]


def test_only_hash_functions_are_used_that_every_server_has_built_in() -> None:
    """MD5() and SHA1() are a component since MySQL 9.6, which is not installed by default."""
    columns = [Column(name, name) for name in ("int", "varchar", "text", "blob", "date", "json")]
    text = sql.row_hash(columns)
    assert set(re.findall(r"\b(MD5|SHA1|SHA|SHA2|CRC32)\(", text)) == {"SHA2"}
