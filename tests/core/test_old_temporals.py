"""TIME, DATETIME and TIMESTAMP in the form of old servers. The server's SELECT says what they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.logs import TABLE_MAP, decode, events, log_of, schema_of, select
from tests.core.test_rare_values import (
    TYPES,
    Written,
    by_log,
    by_snapshot,
    column,
    messages,
    read,
    snapshot_messages,
)

from penstock import _core
from penstock.errors import PenstockError
from penstock.testing import servers

OLD = {7, 11, 12}
"""The codes of TIMESTAMP, TIME and DATETIME in table maps. The new forms have 17 to 19."""
PRECISIONS = range(7)
TIMES = (
    "0", "'-00:00:00.000001'", "'00:00:00.9'", "'-12:34:56.123456'", "'838:59:59.999999'",
    "'-838:59:59.999999'", "'-838:59:59'", "'23:59:59.999999'", "NULL",
)  # fmt: skip
DATETIMES = (
    "0", "'0000-00-00 00:00:00.000001'", "'2024-02-29 12:34:56.123456'", "'9999-12-31 23:59:59.999999'",
    "'1000-01-01'", "'2024-00-00 12:34:56.5'", "'2023-11-31 01:02:03'", "'0001-01-01 00:00:00'", "NULL",
)  # fmt: skip
TIMESTAMPS = (
    "0", "'1970-01-01 00:00:00.5'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'",
    "'2024-02-29 12:34:56.123456'", "'2001-09-09 01:46:40.000001'", "NULL",
)  # fmt: skip
VALUES = {"time": TIMES, "datetime": DATETIMES, "timestamp": TIMESTAMPS}
LOOSE = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"


def old_columns(server: servers.DatabaseServer) -> int:
    """How many columns of the log's last table map are in the old form."""
    path, _ = log_of(server)
    with open(path, "rb") as file:
        data = file.read()
    last = [event for event in events(path) if event.kind == TABLE_MAP][-1]
    body = data[last.offset + 19 + 8 : last.end]
    database = body[0]
    table = body[database + 2]
    count = body[database + table + 4]
    codes = body[database + table + 5 :][:count]
    return sum(code in OLD for code in codes)


@pytest.fixture(
    scope="module",
    params=[servers.MariaDb1011Server, pytest.param(servers.MariaDb118Server, marks=pytest.mark.slow)],
    ids=["10.11", "11.8"],
)
def server(request: pytest.FixtureRequest) -> Iterator[servers.DatabaseServer]:
    with request.param(options={"mysql56_temporal_format": "OFF"}) as one:
        one.execute("CREATE DATABASE d")
        yield one


@pytest.fixture(scope="module", params=["time", "datetime", "timestamp"])
def written(server: servers.DatabaseServer, request: pytest.FixtureRequest) -> Written:
    kind, table = request.param, f"d.{request.param}_"
    fields = ", ".join(f"{kind[0]}{fsp} {kind}({fsp}) NULL" for fsp in PRECISIONS)
    values = VALUES[kind]
    rows = ", ".join(f"({', '.join([value] * 7)}, {id})" for id, value in enumerate(values, 1))
    back = ", ".join(f"{kind[0]}{fsp} = {values[2]}" for fsp in PRECISIONS)
    server.execute(
        LOOSE,
        f"CREATE TABLE {table} ({fields}, id INT PRIMARY KEY, last {kind}(3) NULL)",
        "FLUSH BINARY LOGS",
        f"INSERT INTO {table} ({', '.join(f'{kind[0]}{fsp}' for fsp in PRECISIONS)}, id) VALUES {rows}",
    )
    assert old_columns(server) == 8
    server.execute(LOOSE, f"UPDATE {table} SET last = {kind[0]}4", f"INSERT INTO {table} (id) VALUES (99)")
    server.execute(LOOSE, f"UPDATE {table} SET {back} WHERE id = 99")
    return read(server, table)


def names(written: Written) -> list[str]:
    return [column.name for column in written[1].columns]


def test_the_last_images_in_the_log_are_what_select_shows(written: Written) -> None:
    rows = {row["id"]: row for row in by_log(written)}
    for expected in written[2]:
        row = rows[int(str(expected["id"]))]
        assert {name: None if row[name] is None else str(row[name]) for name in expected} == expected


def test_rows_that_are_read_are_what_select_shows(written: Written) -> None:
    [batch] = by_snapshot(written)
    for name in names(written):
        assert column(batch.to_pylist(), name) == column(written[2], name)


@pytest.mark.parametrize("format", ["json", "debezium", "maxwell", "canal"])
def test_messages_of_the_log_are_those_of_rows_that_are_read(written: Written, format: str) -> None:
    def rows(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The last row of each key."""
        lists = [one["data"] if format == "canal" else [one.get("data") or one["after"]] for one in found]
        return {str(row["id"]): row for some in lists for row in some}

    by_id = rows(messages(written, format))
    assert by_id == rows(snapshot_messages(written, format))
    assert by_id.keys() == {str(row["id"]) for row in written[2]}


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
@pytest.mark.parametrize("kind", ["time(3)", "datetime(6)", "timestamp(1)", "time"])
def test_old_times_are_keys_and_the_only_column(
    server: servers.DatabaseServer, kind: str, metadata: str
) -> None:
    server.execute(
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        LOOSE,
        f"CREATE OR REPLACE TABLE d.only_ (t {kind} NOT NULL PRIMARY KEY)",
        "FLUSH BINARY LOGS",
        "INSERT INTO d.only_ VALUES ('2010-01-02 11:22:33.123456'), ('2010-01-02 11:22:33.923456')"
        if kind != "time"
        else "INSERT INTO d.only_ VALUES ('11:22:33'), ('-11:22:34')",
        "DELETE FROM d.only_ ORDER BY t LIMIT 1",
    )
    assert old_columns(server) == 1
    schema = schema_of(server, "d.only_")
    found = decode(server, schema, layout="latest", types=TYPES.to_json()).to_pylist()
    left = [str(row["t"]) for row in found if not row["_penstock_deleted"]]
    assert len(found) == 2
    assert left == [value for (value,) in select(server, "SELECT t FROM d.only_")]


@pytest.mark.parametrize(
    ("setting", "sql", "old"),
    [
        ("ON", "", 2),
        ("OFF", "ADD d DATETIME(2)", 3),
        ("ON", "ADD d DATETIME(2)", 0),
        ("ON", "FORCE", 0),
    ],
)
def test_old_and_new_forms_are_told_apart_by_the_table_map(
    server: servers.DatabaseServer, setting: str, sql: str, old: int
) -> None:
    """LIKE keeps the old form. With the setting on, rebuilding a table gives it the new one."""
    server.execute(
        "CREATE OR REPLACE TABLE d.base_ (id INT PRIMARY KEY, t TIME(3), s TIMESTAMP(6) NULL)",
        f"SET GLOBAL mysql56_temporal_format = {setting}",
        "CREATE OR REPLACE TABLE d.like_ LIKE d.base_",
        f"ALTER TABLE d.like_ {sql}" if sql else "SELECT 1",
        "FLUSH BINARY LOGS",
        "INSERT INTO d.like_ (id, t, s) VALUES (1, '-1:02:03.456', '2020-01-01')",
        "SET GLOBAL mysql56_temporal_format = OFF",
    )
    assert old_columns(server) == old
    [row] = decode(server, schema_of(server, "d.like_"), types=TYPES.to_json()).to_pylist()
    [expected] = select(server, "SELECT t, s FROM d.like_")
    assert (str(row["t"]), str(row["s"])) == expected


def test_a_log_alone_does_not_say_how_long_old_values_are(server: servers.DatabaseServer) -> None:
    server.execute(
        "SET GLOBAL binlog_row_metadata = FULL",
        "CREATE OR REPLACE TABLE d.alone (id INT PRIMARY KEY, t TIME(3))",
        "FLUSH BINARY LOGS",
        "INSERT INTO d.alone VALUES (1, '01:02:03.456')",
    )
    assert old_columns(server) == 1
    path, _ = log_of(server)
    encoder = _core.LogEncoder([(path, 0, 0, None, [])], "json", options="{}")
    with pytest.raises((_core.SchemaMismatch, PenstockError), match=r"`t` of d\.alone.*--ddl or --server"):
        while encoder.read() is not None:
            pass
    inspector = _core.Inspector(path)
    assert not [line for line in inspector.next_lines(1000) or [] if "alone" in line]
    assert "old form" in str(inspector.summary())
