"""Values that few tables have. The server's SELECT says what they are: by the log and by the snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.logs import decode, log_of, schema_of, select

from penstock import _core
from penstock.model.chunk import Chunk
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.testing import servers

SETS = ("''", "1", "2", "3", "4", "6", "7", "NULL")
"""As numbers: an empty label does not show at the beginning, and elsewhere as a comma."""
TYPES = TypeOptions(zero_dates="text")

Written = tuple[servers.DatabaseServer, TableSchema, list[dict[str, str | None]]]


def read(server: servers.DatabaseServer, table: str) -> Written:
    schema = schema_of(server, table)
    names = [column.name for column in schema.columns]
    rows = select(server, f"SELECT * FROM {table} ORDER BY id")
    texts = [[one.decode() if isinstance(one, bytes) else one for one in row] for row in rows]
    return server, schema, [dict(zip(names, row, strict=True)) for row in texts]


def by_log(written: Written) -> list[dict[str, Any]]:
    server, schema, _ = written
    rows = decode(server, schema, types=TYPES.to_json())
    return list(rows.sort_by("id").to_pylist())


def by_snapshot(written: Written) -> list[Any]:
    server, schema, _ = written
    reader = MySqlChunkReader(server.connect(), types=TYPES)
    try:
        return list(reader.read(schema, Chunk(schema.table, 0, None, None)))
    finally:
        reader.close()


def column(rows: list[dict[str, Any]], name: str) -> list[str | None]:
    return [None if row[name] is None else str(row[name]) for row in rows]


def messages(written: Written, format: str) -> list[Any]:
    server, schema, _ = written
    parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
    encoder = _core.LogEncoder(parts, format, options="{}", schemas=[schema.to_json()])
    found: list[Any] = []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            found += [json.loads(value) for _, _, value, _ in step.messages() if value]
    return found


def row_of(message: dict[str, Any]) -> Any:
    return message["data"][0] if "data" in message else message["after"]


def snapshot_messages(written: Written, format: str) -> list[Any]:
    encoder = _core.RowEncoder(written[1].to_json(), format, options="{}")
    found = [one for batch in by_snapshot(written) for one in encoder.encode(batch, at_us=1).messages()]
    return [json.loads(value) for _, _, value, _ in found if value]


@pytest.fixture(scope="module")
def sets() -> Iterator[Written]:
    with servers.MySqlServer() as server:
        rows = ", ".join(f"({id}, {value}, {value})" for id, value in enumerate(SETS))
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.s (id INT PRIMARY KEY, first SET('','a','b'), later SET('a','','b'))",
            "FLUSH BINARY LOGS",
            "SET sql_mode = ''",
            f"INSERT INTO d.s VALUES {rows}",
        )
        yield read(server, "d.s")


def test_a_set_with_an_empty_label_is_what_select_shows(sets: Written) -> None:
    for name in ("first", "later"):
        expected = column(sets[2], name)
        assert column(by_log(sets), name) == expected
        [batch] = by_snapshot(sets)
        assert column(batch.to_pylist(), name) == expected
        for found in (messages, snapshot_messages):
            for format in ("json", "debezium"):
                assert column([row_of(one) for one in found(sets, format)], name) == expected
        lists = [row["data"][name] for row in messages(sets, "maxwell")]
        assert ",".join(lists[6]) == {"first": ",a,b", "later": "a,,b"}[name]
    assert column(sets[2], "later")[6] == "a,,b" and column(sets[2], "first")[6] == "a,b"


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Written]:
    """YEAR(2), and moments of the second that is otherwise the zero timestamp."""
    with servers.MariaDb1011Server() as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.m (id INT PRIMARY KEY, year YEAR(2), at TIMESTAMP(6) NULL)",
            "FLUSH BINARY LOGS",
            "SET sql_mode = '', time_zone = '+00:00'",
            """INSERT INTO d.m VALUES (1, 70, '1970-01-01 00:00:00.5'),
               (2, 2069, '1970-01-01 00:00:00.000001'), (3, 2000, '1970-01-01 00:00:01'), (4, 0, 0),
               (5, NULL, NULL)""",
        )
        yield read(server, "d.m")


@pytest.mark.parametrize("form", ["log", "snapshot", "messages", "messages of a snapshot"])
def test_mariadbs_years_of_two_digits_and_first_moments_are_what_select_shows(
    mariadb: Written, form: str
) -> None:
    years = [None if year is None else str(int(year)) for year in column(mariadb[2], "year")]
    assert years == ["70", "69", "0", "0", None]
    if form == "log":
        rows = by_log(mariadb)
    elif form == "snapshot":
        rows = [row for batch in by_snapshot(mariadb) for row in batch.to_pylist()]
    else:
        found = messages if form == "messages" else snapshot_messages
        rows = [row_of(message) for message in found(mariadb, "json")]
    assert column(rows, "year") == years
    assert column(rows, "at") == column(mariadb[2], "at")


def test_character_sets_behind_a_spatial_column_of_mariadb_are_their_own() -> None:
    with servers.MariaDb1011Server() as server:
        for metadata in ("MINIMAL", "FULL"):
            table = f"d.{metadata.lower()}"
            server.execute(
                "CREATE DATABASE IF NOT EXISTS d",
                f"SET GLOBAL binlog_row_metadata = {metadata}",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, at POINT, kind ENUM('я') CHARACTER SET cp1251, "
                "russian TEXT CHARACTER SET cp1251, bytes VARBINARY(9), more GEOMETRY, "
                "west VARCHAR(9) CHARACTER SET latin1) CHARACTER SET utf8mb4",
                "FLUSH BINARY LOGS",
                f"INSERT INTO {table} VALUES (1, POINT(1, 2), 'я', 'привет', 'ab', POINT(3, 4), 'é')",
            )
            [row] = decode(server, schema_of(server, table)).to_pylist()
            assert (row["kind"], row["russian"], row["bytes"], row["west"]) == ("я", "привет", b"ab", "é")
        [message] = described(server)
        assert (message["kind"], message["russian"], message["west"]) == ("я", "привет", "é")
        assert message["bytes"] == "YWI="


def described(server: servers.DatabaseServer) -> list[dict[str, Any]]:
    """The rows after the changes, as the log alone describes them."""
    parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
    encoder, found = _core.LogEncoder(parts, "json", options="{}"), []
    while (step := encoder.read()) is not None:
        if isinstance(step, _core.EncodedMessages):
            found += [json.loads(value)["after"] for _, _, value, _ in step.messages() if value]
    return found
