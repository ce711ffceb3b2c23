"""The choices of `types`: each value is what the server says under the same rule, by log and by SELECT."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.core.logs import decode, schema_of, select

from penstock import _core
from penstock.model.chunk import Chunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.sources.mysql.verify import sql
from penstock.testing import servers

TABLE = """CREATE TABLE d.t (
    id BIGINT NOT NULL, flag TINYINT(1) NOT NULL, price DECIMAL(30,10) NOT NULL,
    big BIGINT UNSIGNED, wide DECIMAL(65,30), filled DECIMAL(50,2) ZEROFILL, t TIME(3), b BINARY(5),
    v VARBINARY(300), l LONGBLOB, yes TINYINT(1), tiny TINYINT, unsign TINYINT(1) UNSIGNED, s VARCHAR(9),
    PRIMARY KEY (id, flag, price))"""

ROWS = """INSERT INTO d.t VALUES
    (-7, 2, 0.1000000001, 9223372036854775807, -0.1, 7.5, '-838:59:59', 'ab', 'x', '', 2, 2, 0,
     'a'),
    (1, 0, -12345678901234567890.0000000001, 0, 12345678901234567890123456789012345.1, 0, '-00:00:00.001', '',
     REPEAT(x'ff00', 150), REPEAT('z', 70000), 0, 0, 3, 'b'),
    (2, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (3, -1, 1e19, 1, 1e-30, 123456789012345678901234567890123456789012345678.99, '838:59:59', x'0001',
     x'00', x'00010203', -1, -1, 1, 'c')"""

ROW_OVER = "INSERT INTO d.t (id, flag, price, big) VALUES (4, 1, 1, 9223372036854775808)"

CHOICES = [
    TypeOptions(),
    TypeOptions(bigint_unsigned="long", decimal="string", time="micros", binary="hex", tinyint1="boolean"),
    TypeOptions(bigint_unsigned="string", decimal="double", binary="base64"),
]

# How the server is asked for the same under a choice.
EXPRESSIONS: dict[tuple[str, str], dict[str, str]] = {
    ("decimal", "double"): {"wide": "wide + 0e0", "filled": "filled + 0e0"},
    ("time", "micros"): {"t": "CAST(TIME_TO_SEC(t) * 1000000 + IF(t < 0, -1, 1) * MICROSECOND(t) AS SIGNED)"},
    ("binary", "bytes"): {name: f"HEX({name})" for name in "bvl"},
    ("binary", "hex"): {name: f"HEX({name})" for name in "bvl"},
    ("binary", "base64"): {name: f"REPLACE(TO_BASE64({name}), '\\n', '')" for name in "bvl"},
    ("tinyint1", "boolean"): {"yes": "yes <> 0"},
}


@pytest.fixture(scope="module")
def written() -> Iterator[servers.MySqlServer]:
    with servers.MySqlServer() as server:
        server.execute("CREATE DATABASE d", TABLE, "FLUSH BINARY LOGS", ROWS)
        yield server


def expected(server: servers.MySqlServer, schema: TableSchema, types: TypeOptions) -> list[tuple[Any, ...]]:
    asked = {"filled": "filled + 0"}
    for (option, choice), columns in EXPRESSIONS.items():
        if getattr(types, option) == choice:
            asked |= columns
    chosen = [asked.get(column.name, column.name) for column in schema.columns]
    return select(server, f"SELECT {', '.join(chosen)} FROM d.t ORDER BY id")


def same(ours: Any, server: str | bytes | None) -> bool:
    server = server.decode() if isinstance(server, bytes) else server
    if ours is None or server is None:
        return ours is None and server is None
    match ours:
        case bool():
            return server == str(int(ours))
        case bytes():
            return server == ours.hex().upper()
        case float():
            return ours == float(server)
        case decimal.Decimal():
            return server == f"{ours:f}"
    return server == str(ours)


def read_rows(server: servers.MySqlServer, schema: TableSchema, types: TypeOptions) -> pa.Table:
    reader = MySqlChunkReader(server.connect(), types=types)
    batches = list(reader.read(schema, Chunk(schema.table, 0, None, None)))
    reader.close()
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("types", CHOICES, ids=["defaults", "exact", "easy"])
def test_each_choice_gives_what_the_server_says_under_the_same_rule(
    written: servers.MySqlServer, types: TypeOptions
) -> None:
    schema = schema_of(written, "d.t")
    theirs = expected(written, schema, types)
    logged = decode(written, schema, types=types.to_json()).sort_by("id")
    read = read_rows(written, schema, types).sort_by("id")
    for position, column in enumerate(schema.columns):
        ours = logged.column(column.name)
        assert ours.equals(read.column(column.name)), column.name
        for value, row in zip(ours.to_pylist(), theirs, strict=True):
            assert same(value, row[position]), (column.name, value)


@pytest.mark.parametrize("types", CHOICES, ids=["defaults", "exact", "easy"])
def test_verification_compares_under_the_same_choices(
    written: servers.MySqlServer, types: TypeOptions
) -> None:
    schema = schema_of(written, "d.t")
    table = decode(written, schema, types=types.to_json()).sort_by("id").combine_chunks()
    [batch] = table.select([column.name for column in schema.columns]).to_batches()
    names = [column.name for column in schema.columns]
    hashed = sql.row_hash(schema.columns, types, key=schema.key)
    key = sql.key_text([schema.column(name) for name in schema.key])
    theirs = select(written, f"SELECT {hashed}, {key} FROM d.t ORDER BY id")
    arguments = (schema.to_json(), batch)
    assert _core.row_hashes(*arguments, names, types.to_json()).to_pylist() == [int(row[0]) for row in theirs]
    assert _core.row_texts(*arguments, schema.key, types.to_json()).to_pylist() == [row[1] for row in theirs]


def test_a_choice_that_makes_different_values_equal_is_not_made_in_a_key(
    written: servers.MySqlServer,
) -> None:
    arrow = _core.arrow_schema(
        schema_of(written, "d.t").to_json(),
        "rows",
        TypeOptions(decimal="double", tinyint1="boolean").to_json(),
    )
    assert [arrow.field(name).type for name in ("flag", "price", "wide", "yes", "tiny", "unsign")] == [
        pa.int32(), pa.decimal128(30, 10), pa.float64(), pa.bool_(), pa.int32(), pa.int32(),
    ]  # fmt: skip


def test_an_unsigned_bigint_that_does_not_fit_a_long_is_refused(emptied_mysql: Any) -> None:
    server = emptied_mysql()
    server.execute("CREATE DATABASE d", TABLE, ROW_OVER)
    schema = schema_of(server, "d.t")
    with pytest.raises(_core.SchemaMismatch, match=r"column `big` of d\.t: an integer beyond the range"):
        decode(server, schema, types=TypeOptions(bigint_unsigned="long").to_json())
    table = decode(server, schema, types=TypeOptions(bigint_unsigned="string").to_json())
    assert table.column("big").to_pylist() == ["9223372036854775808"]
