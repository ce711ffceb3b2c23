"""Dates and numbers that Spark's types cannot have. The oracle is the server: `format('%s', value)`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import PgLog, Segment, table_of

from penstock import _core
from penstock.errors import TableError
from penstock.model.chunk import Chunk
from penstock.model.schema import TableId, TypeOptions
from penstock.sources.postgresql.catalog import PgTable
from penstock.sources.postgresql.reading import Received, copy
from penstock.testing.servers.postgresql import PostgreSqlServer

TABLE = """CREATE TABLE extremes (id int PRIMARY KEY, d date, t timestamp, z timestamptz, n numeric(10,2),
    l date[], m numeric(5,2)[])"""
VALUES = [
    "'infinity', 'infinity', 'infinity', 'NaN', '{infinity,2024-01-01}', '{NaN,1.50}'",
    "'-infinity', '-infinity', '-infinity', 'NaN', '{-infinity}', '{NaN}'",
    (
        "'0044-03-15 BC', '0044-03-15 12:00 BC', '0044-03-15 12:00:00.5+00 BC', 'NaN', "
        "'{0044-03-15 BC,NULL}', '{}'"
    ),
    "'5874897-12-31', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999+00', 'NaN', NULL, NULL",
    "'10000-01-01', '10000-01-01', '10000-01-01', 'NaN', '{10000-01-01}', '{NaN}'",
    "'4713-01-01 BC', '4713-01-01 BC', '4713-01-01 BC', 'NaN', '{4713-01-01 BC}', '{NULL,NaN}'",
]
USUAL = """'2024-02-29', '2024-02-29 01:02:03.000004', '2024-02-29 01:02:03.000004', '-1.25',
    '{2024-02-29}', '{1.50}'"""
COLUMNS = ("d", "t", "z", "n", "l", "m")
TEXT = TypeOptions(extreme_dates="text", not_numbers="text")


@pytest.fixture(params=[True, False], ids=["binary", "text"])
def segment(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path, request: Any
) -> Iterator[Segment]:
    log = PgLog(server, connection, "extremes")
    connection.execute("DROP TABLE IF EXISTS extremes, timed")
    connection.execute(TABLE)
    connection.execute("CREATE TABLE timed (at timestamptz, n numeric(9,2), v int, PRIMARY KEY (at, n))")
    try:
        for id, values in enumerate([*VALUES, USUAL]):
            connection.execute(f"INSERT INTO extremes VALUES ({id}, {values})".encode())
        connection.execute(
            "INSERT INTO timed VALUES ('infinity', 'NaN', 1), ('-infinity', 1, 2), "
            "('0044-03-15 BC', 2.50, 3), ('2024-01-01', 3, 4)"
        )
        connection.execute("UPDATE timed SET v = v + 10")
        connection.execute("DELETE FROM timed WHERE n = 1")
        yield log.segment(tmp_path / "0.pgoutput", binary=request.param)
    finally:
        log.close()


def _read(connection: psycopg.Connection[Any], table: PgTable, types: TypeOptions) -> list[dict[str, Any]]:
    batches = copy(connection, table, Chunk(table.table, 0, None, None), types, Received())
    return [row for batch in batches for row in batch.to_pylist()]


def test_as_text_they_are_what_select_shows(segment: Segment, connection: psycopg.Connection[Any]) -> None:
    table = table_of(connection, TableId("public", "extremes"))
    shown = ", ".join(
        f"array_to_json({one}::text[])::text" if one in "lm" else f"format('%s', {one})" for one in COLUMNS
    )
    streamed = {row["id"]: row for row in segment.changes(table.schema.to_json(), types=TEXT)}
    read = {row["id"]: row for row in _read(connection, table, TEXT)}
    for id, *wanted in connection.execute(f"SELECT id, {shown} FROM extremes".encode()).fetchall():
        for row in (streamed[id], read[id]):
            found = [row[one] for one in COLUMNS]
            if id == len(VALUES):
                wanted[2] = wanted[2].removesuffix("+00")  # moments that a timestamp can be have no zone
            assert found[:4] == wanted[:4], id
            for one, other in zip(found[4:], wanted[4:], strict=True):
                assert (one or "null").replace('"', "") == (other or "null").replace('"', ""), id


def test_as_null_the_others_stay(segment: Segment, connection: psycopg.Connection[Any]) -> None:
    types = TypeOptions(extreme_dates="null", not_numbers="null")
    table = table_of(connection, TableId("public", "extremes"))
    for rows in (segment.changes(table.schema.to_json(), types=types), _read(connection, table, types)):
        by_id = {row["id"]: row for row in rows}
        assert all(by_id[id][one] is None for id in range(len(VALUES)) for one in ("d", "t", "z", "n"))
        assert (
            by_id[len(VALUES)]["d"] == datetime.date(2024, 2, 29) and str(by_id[len(VALUES)]["n"]) == "-1.25"
        )


def test_by_default_they_stop_the_table_and_the_option_is_named(
    segment: Segment, connection: psycopg.Connection[Any]
) -> None:
    table = table_of(connection, TableId("public", "extremes"))
    with pytest.raises(_core.SchemaMismatch, match=r"types\.extreme_dates"):
        segment.changes(table.schema.to_json())
    with pytest.raises(TableError, match=r"types\.extreme_dates"):
        _read(connection, table, TypeOptions())
    with pytest.raises(_core.SchemaMismatch, match=r"types\.not_numbers"):
        segment.changes(table.schema.to_json(), types=TypeOptions(extreme_dates="null"))


def test_in_keys_they_are_exact(segment: Segment, connection: psycopg.Connection[Any]) -> None:
    table = table_of(connection, TableId("public", "timed"))
    schema = table.schema.to_json()
    rows = segment.changes(schema, "latest", types=TEXT)
    wanted = connection.execute("SELECT format('%s', at), format('%s', n), v FROM timed").fetchall()
    found = [
        (row["at"].replace(".000000", ""), row["n"], row["v"]) for row in rows if not row["_penstock_deleted"]
    ]
    assert sorted(found) == sorted(
        (at.removesuffix("+00") if at[0] == "2" else at, n, v) for at, n, v in wanted
    )
    assert [row["at"] for row in rows if row["_penstock_deleted"]] == ["-infinity"]
    with pytest.raises(_core.SchemaMismatch, match="in a key, to `text`"):
        segment.changes(schema, "latest", types=TypeOptions(extreme_dates="null", not_numbers="null"))


@pytest.mark.parametrize("format", ["json", "maxwell", "canal"])
def test_messages_have_them_as_text(
    segment: Segment, connection: psycopg.Connection[Any], format: str
) -> None:
    rows = list[dict[str, Any]]()
    for one in segment.messages(format):
        if one["table"] == "extremes":
            row: Any = one.get("data") or one.get("after")
            rows += row if isinstance(row, list) else [row]
    shown = ", ".join(f"format('%s', {one})" for one in COLUMNS[:4])
    wanted = connection.execute(f"SELECT {shown} FROM extremes WHERE id < {len(VALUES)} ORDER BY id".encode())
    assert [tuple(row[one] for one in COLUMNS[:4]) for row in rows[:-1]] == wanted.fetchall()


def test_debeziums_messages_refuse_what_they_have_no_value_for(segment: Segment) -> None:
    with pytest.raises(_core.SchemaMismatch, match="Debezium's format has no value"):
        segment.messages("debezium")
