"""Databases and tables whose names are easily taken for each other, through a whole pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from penstock.model.schema import TableId
from penstock.sources.mysql.identifiers import quote, quoted
from penstock.testing import oracle
from penstock.testing.scenario import Scenario, refusal
from penstock.testing.servers import Database

TABLES = [
    ("{}.b", "t"), ("{}", "b.t"), ("{}", "t"), ("{}", "T"), ("{}`y", "x`y"), ("{}.`y", "b.t"),
    ("{}", "é"), ("{}", "e\u0301"), ("{}", "t*"), ("{}", "t_%?"), ("{}x", "b.t"), ("{}X", "b.t"),
    ("{}", "%2F..%2F..%2Fx"), ("{}", "x?y#z"),
]  # fmt: skip


@pytest.fixture
def tables(mysql: Database) -> Iterator[list[TableId]]:
    """`a.b`.t and a.`b.t` at once, and other pairs; `*` and `_` are parts of names."""
    tables = [TableId(database.format(mysql.name), table) for database, table in TABLES]
    databases = sorted({table.database for table in tables} - {mysql.name})
    mysql.execute(
        *(f"CREATE DATABASE {quote(name)}" for name in databases),
        *(f"CREATE TABLE {quoted(table)} (id INT PRIMARY KEY, v VARCHAR(20))" for table in tables),
    )
    write(mysql, tables, 0)
    yield tables
    mysql.execute(*(f"DROP DATABASE {quote(name)}" for name in databases))


def write(server: Database, tables: list[TableId], round: int) -> None:
    """Other rows into each table, all in one transaction."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for place, table in enumerate(tables):
            for id in range(round * 100, round * 100 + place + 2):
                cursor.execute(f"INSERT INTO {quoted(table)} VALUES ({id}, 'table {place}')")
            cursor.execute(f"UPDATE {quoted(table)} SET v = CONCAT(v, '!') WHERE id % 3 = {place % 3}")
        cursor.execute("COMMIT")


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_tables_with_like_names_arrive_each_with_its_rows(
    mysql: Database, tables: list[TableId], scenario: Callable[..., Scenario], sink: str
) -> None:
    case = scenario(sink, tables=[f"`{mysql.name}`.*", f"{mysql.name}?*.*"])
    case.write_file(
        sink={"type": sink, "path": str(case.sink_path), "namespace": case.namespace + "{database}"}
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        write(mysql, tables, 1)
        case.drain(pipeline)
        again = tables[0]
        done = case.command("resnapshot", str(again), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[str(again)]["ok"]
        write(mysql, tables, 2)
        case.drain(pipeline)
        status = case.status()
    assert {TableId.parse(one["table"]) for one in status["tables"]} == set(tables)
    done = case.command("verify", "--json", timeout=900)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["equal"], report
    assert {TableId.parse(one["table"]) for one in report["tables"]} == set(tables)
    for table in tables:
        columns = oracle.columns_of(mysql, str(table))
        found = oracle.canonical_rows(map(tuple, rows(case, table)), columns)
        difference = oracle.compare(oracle.rows_of(mysql, str(table)), found)
        assert not difference, f"{table}: {difference}"
    asked = case.command("query", "SELECT count(*) AS rows FROM `t*`", "--json")
    assert asked.returncode == 0, asked.stderr
    [(count,)] = mysql.query(f"SELECT count(*) FROM {quoted(tables[8])}")
    assert json.loads(asked.stdout) == {"rows": count}
    # Several tables have this name, so it names none.
    refusal(case.command("query", "SELECT * FROM `b.t`"), "Not by these names alone", str(tables[1]))
    if sink == "iceberg":
        for path in case.sink_path.rglob("*.parquet"):
            assert path.parent.name == "data" and (path.parent.parent / "metadata").is_dir(), path


def rows(case: Scenario, table: TableId) -> list[tuple[object, ...]]:
    """What Spark reads from the target, without our code."""
    if case.sink == "iceberg":
        coded = table.table.replace("?", "@003f").replace("#", "@0023")  # as docs/tables.md says
        name = f"lake.{quote(case.namespace + table.database)}.{quote(coded)}"
        frame = case.spark.sql(f"SELECT id, v FROM {name}")
    else:
        from penstock.sinks.names import directory_name

        folder = (
            case.sink_path / directory_name(case.namespace + table.database) / directory_name(table.table)
        )
        frame = case.spark.read.format("delta").load(str(folder)).select("id", "v")
    return [tuple(row) for row in frame.collect()]
