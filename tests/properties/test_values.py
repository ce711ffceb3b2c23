"""Snapshot = stream = SELECT, for generated tables, rows and changes, on each server of the matrix.

The log is the server's own file; the snapshot is what a chunk reader gets; the judge is the text of the
server's SELECT, carried by PyMySQL. `make test-all` runs every flavor, the quick run MySQL 8.0.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.core import alltypes
from tests.core.test_decode import without_zero_dates
from tests.properties import tables

from penstock import _core
from penstock.epochs.tasks import DecodeTask, decode
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset, Split
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.generated_columns import computation
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.testing import servers

SESSION = ("SET NAMES utf8mb4", "SET time_zone = '+00:00'", "SET sql_mode = ''")
ROWS = 500
QUICK, TABLES = 8, 20
"""Seeds, each a table."""


def charsets(server: servers.MySqlClient) -> list[str]:
    rows = server.query(
        "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS"
        " WHERE CHARACTER_SET_NAME <> 'binary'"
    )
    return sorted(str(name) for (name,) in rows)


def run(server: servers.DatabaseServer, statements: list[str]) -> None:
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        for statement in [*SESSION, *statements]:
            cursor.execute(statement)


def selected(server: servers.DatabaseServer, sql: str) -> list[tuple[Any, ...]]:
    with server.connect(conv={}, charset="utf8mb4") as connection, connection.cursor() as cursor:
        for statement in SESSION:
            cursor.execute(statement)
        cursor.execute(sql)
        return list(cursor.fetchall())


def schema_of(server: servers.DatabaseServer, name: str) -> TableSchema:
    with server.connect() as connection:
        schema = read_table(connection, TableId.parse(name))
    assert schema is not None
    return schema


def read(server: servers.DatabaseServer, schema: TableSchema, types: TypeOptions) -> pa.Table:
    reader = MySqlChunkReader(server.connect(), types=types)
    batches = list(reader.read(schema, Chunk(schema.table, 0, None, None)))
    reader.close()
    return pa.Table.from_batches(batches)


def decoded(server: servers.DatabaseServer, schema: TableSchema, types: TypeOptions) -> pa.Table:
    """The last changes in the newest log file, as a task of an epoch decodes them."""
    path = server.binlog_files()[-1]
    task = DecodeTask(
        schema.to_json(),
        (Split(str(path), Offset(0), Offset(0), Offset(path.stat().st_size)),),
        "latest",
        types,
    )
    try:
        batches = list(decode(task))
    except _core.SchemaMismatch as error:
        if error.lacks != "generated":
            raise
        source = MySqlOptions(host="127.0.0.1", port=server.port, user=server.user, password=server.password)
        batches = list(decode(replace(task, computation=computation(source, schema))))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches)


def differences(names: list[str], ours: pa.Table, theirs: list[tuple[Any, ...]]) -> list[str]:
    found = []
    assert ours.column("id").to_pylist() == [int(row[0]) for row in theirs]
    for position, name in enumerate(names):
        for value, row in zip(ours.column(name).to_pylist(), theirs, strict=True):
            if not alltypes.same(value, row[position]):
                found.append(f"{name}, row {row[0]}: {str(value)[:80]!r}, server {str(row[position])[:80]!r}")
    return found


@pytest.mark.parametrize(
    "seed", [*range(QUICK), *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(QUICK, TABLES)]]
)
def test_snapshot_and_log_give_what_select_shows(flavor: servers.DatabaseServer, seed: int) -> None:
    name = next(name for name, kind in servers.FLAVORS.items() if type(flavor) is kind)
    chance = random.Random(seed)
    kinds = tables.kinds(name, charsets(flavor), chance)
    table = tables.a_table(chance, kinds, invisible=name in ("mysql97", "mariadb1011", "mariadb118"))
    run(
        flavor,
        [
            "CREATE DATABASE IF NOT EXISTS d", "DROP TABLE IF EXISTS d.t", table.create("d.t"),
            "FLUSH BINARY LOGS",
            *(table.insert("d.t", [table.row(chance, number) for number in range(start, start + 50)])
              for start in range(0, ROWS, 50)),
            *(table.update("d.t", chance, ROWS) for _ in range(20)),
            *(f"DELETE FROM d.t WHERE id % 50 = {chance.randrange(50)}" for _ in range(3)),
        ],
    )  # fmt: skip
    types = TypeOptions(zero_dates="text" if seed % 2 else "null")
    schema = schema_of(flavor, "d.t")
    assert [column.name for column in schema.columns] == table.names
    logged = decoded(flavor, schema, types)
    logged = logged.filter(pc.invert(logged.column("_penstock_deleted"))).select(table.names).sort_by("id")
    theirs = selected(flavor, table.select("d.t"))
    expected = theirs if types.zero_dates == "text" else without_zero_dates(theirs)
    assert len(theirs) > ROWS * 0.5
    assert differences(table.names, logged, expected)[:5] == []
    snapshot = read(flavor, schema, types).sort_by("id")
    for column in table.names:
        assert snapshot.column(column).equals(logged.column(column)), column
