"""Pipelines into SQL databases. The judge is the SELECT of both servers."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.core import alltypes
from tests.sinks.conformance import with_servers

from penstock.secret import REVEALED
from penstock.testing import oracle, servers
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
FILES = ("sqlite", "duckdb")
ZERO = ("c_zero_date", "c_zero_datetime", "c_zero_timestamp")


class Target:
    """A database that a pipeline writes to."""

    def __init__(self, product: str, folder: Any) -> None:
        self.product = product
        self.server: Any = None if product in FILES else with_servers.server(product)
        self.file = folder / "targets.db"

    @property
    def options(self) -> dict[str, Any]:
        if self.server is None:
            return {"type": "jdbc", "url": f"jdbc:{self.product}:{self.file}"}
        found = with_servers.options_of(self.server).model_dump(mode="json", context=REVEALED)
        return {**found, "nul_characters": "remove"}

    def rows(self, case: Scenario, table: str) -> list[oracle.Row]:
        columns = oracle.columns_of(case.server, f"{case.database}.{table}")
        names = [column.name for column in columns]
        if self.product == "sqlite":
            file = sqlite3.connect(self.file)
            listed = ", ".join(f'"{name}"' for name in names)
            found: Any = file.execute(f'SELECT {listed} FROM "{case.database}_{table}"').fetchall()
            file.close()
        elif self.product == "duckdb":
            import duckdb

            listed = ", ".join(_shown_by_duckdb(one) for one in columns)
            sql = f'SELECT {listed} FROM "{case.database}"."{table}"'
            opened: list[Any] = []

            def is_free() -> bool:  # the pipeline has it open while it writes
                with contextlib.suppress(duckdb.IOException):
                    opened.append(duckdb.connect(self.file, read_only=True))
                return bool(opened)

            wait_for(is_free, "the file", seconds=30)
            found = opened[0].execute(sql).fetchall()
            opened[0].close()
        elif self.product == "postgresql":
            import psycopg

            server = self.server
            listed = ", ".join(
                f'"{one.name}"' + ("::float8" if one.type == "float" else "") for one in columns
            )
            with psycopg.connect(server.url, user=server.user, password=server.password) as session:
                found = session.execute(f'SELECT {listed} FROM "{case.database}"."{table}"').fetchall()
        else:
            theirs = oracle.columns_of(self.server, f"{case.database}.{table}")  # new ones are the last
            order = [one.name for one in theirs if one.name in names]
            rows = oracle.rows_of(self.server, f"{case.database}.{table}", names)
            found = [[row[order.index(name)] for name in names] for row in rows]
        return oracle.canonical_rows(found, columns)


def _shown_by_duckdb(column: Any) -> str:
    """Texts of times, because Python has none before the year 1."""
    if column.type in ("datetime", "timestamp", "date"):
        return f"replace(CAST(\"{column.name}\" AS VARCHAR), '+00', '')"
    return f'"{column.name}"'


def assert_equal(case: Scenario, target: Target, *tables: str) -> None:
    for table in tables:
        expected = oracle.rows_of(case.server, f"{case.database}.{table}")
        if target.product == "postgresql":
            expected = [tuple(one and one.replace("\0", "") for one in row) for row in expected]
        oracle.assert_same_rows(expected, target.rows(case, table))


@pytest.fixture(params=["postgresql", "mysql80", "mariadb1011", "sqlite", "duckdb"])
def target(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Target]:
    if request.param == "duckdb":
        pytest.importorskip("duckdb")
    yield Target(request.param, tmp_path)


def pipeline_into(scenario: Make, target: Target, **changes: Any) -> Scenario:
    case = scenario("jdbc", **{"epoch": {"interval": "50ms"}, **changes})
    case.options["sink"] = target.options
    case.options["name"] = case.database  # its history table is in a server that tests share
    case.write_file()
    return case


def test_tables_are_kept_equal_over_kills_and_changed_definitions(scenario: Make, target: Target) -> None:
    case = pipeline_into(scenario, target)
    case.server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        alltypes.create_table("t"),
        *alltypes.inserts("t"),
        "ALTER TABLE t " + ", ".join(f"DROP COLUMN {name}" for name in ZERO),
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, PRIMARY KEY (x, y))",
        "INSERT INTO pair VALUES ('a', 18446744073709551615, '[1.50]'), ('b', 0, '{}')",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1), (2)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        assert_equal(case, target, "t", "pair", "emptied")
        case.server.execute(
            "UPDATE pair SET y = y - 1 WHERE x = 'a'",
            "UPDATE t SET c_int = 7 WHERE id % 2 = 1",
            "DELETE FROM t WHERE id = 3",
            "TRUNCATE TABLE emptied",
            "INSERT INTO emptied VALUES (2), (3)",
            "ALTER TABLE pair ADD COLUMN n INT NOT NULL DEFAULT 5 FIRST",
            "INSERT INTO pair (x, y) VALUES ('c', 1)",
            "UPDATE pair SET n = 6 WHERE x = 'b'",
        )
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
        pipeline.start()
        case.server.execute(
            "ALTER TABLE pair RENAME COLUMN n TO m, MODIFY x VARCHAR(40)",
            "ALTER TABLE pair MODIFY m VARCHAR(20), DROP COLUMN v",
            "INSERT INTO pair (x, y) VALUES ('d', 2)",
            "ALTER TABLE emptied ADD COLUMN at DATETIME(3) DEFAULT '2024-02-29 12:00:00.5'",
            "ALTER TABLE emptied DROP PRIMARY KEY, ADD COLUMN k INT DEFAULT 1, ADD PRIMARY KEY (id, k)",
            "INSERT INTO emptied (id, k) VALUES (3, 2)",
        )
        case.drain(pipeline)
        wait_for(lambda: not _waits(case), "the end of snapshots")
        assert_equal(case, target, "t", "pair", "emptied")
        case.server.execute("DELETE FROM emptied WHERE k = 1", "UPDATE t SET id = id + 1000 WHERE id % 2 = 0")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert_equal(case, target, "t", "pair", "emptied")


def _waits(case: Scenario) -> bool:
    return any(one["resnapshot_pending"] for one in case.status()["tables"])


def test_an_outage_of_the_database_is_waited_for(scenario: Make, tmp_path: Any) -> None:
    with servers.postgresql() as server:
        target = Target("sqlite", tmp_path)
        target.product, target.server = "postgresql", server
        case = pipeline_into(scenario, target)
        case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)")
        with case.running() as pipeline:
            case.drain(pipeline)
            server.kill9()
            case.server.execute("INSERT INTO a VALUES (2, 2)")
            wait_for(lambda: case.status()["retrying"], "a retry")
            server.start()
            case.server.execute("UPDATE a SET v = 3")
            case.drain(pipeline)
            assert pipeline.stop() == 0
        assert_equal(case, target, "a")


def test_a_row_that_the_database_refuses_parks_its_table_alone(scenario: Make, tmp_path: Any) -> None:
    target = Target("postgresql", tmp_path)
    case = pipeline_into(scenario, target)
    case.options["sink"]["nul_characters"] = "park"
    case.write_file()
    case.server.execute(
        "CREATE TABLE texts (id INT PRIMARY KEY, v TEXT)",
        "CREATE TABLE good (id INT PRIMARY KEY)",
        "INSERT INTO good VALUES (1)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute("INSERT INTO texts VALUES (1, 'secret\\0text')", "INSERT INTO good VALUES (2)")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert_equal(case, target, "good")
    [parked] = [one for one in case.status()["tables"] if one["status"] == "parked"]
    assert parked["table"] == f"{case.database}.texts"
    why = parked["parked"]
    assert "NUL" in why["reason"] and "nul_characters: remove" in why["hint"] and "secret" not in str(why)
    case.options["sink"]["nul_characters"] = "remove"
    case.write_file()
    with case.running() as pipeline:
        assert case.command("unpark", f"{case.database}.texts").returncode == 0
        case.server.execute("INSERT INTO texts VALUES (2, 'y')")
        wait_for(lambda: not any(one["parked"] for one in case.status()["tables"]), "the table's return")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert_equal(case, target, "texts", "good")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"password": "wrong"}, "sink.password"),
        ({"url": "postgresql://127.0.0.1:1/penstock"}, "sink.url"),
        ({"url": "postgresql://u:secret@127.0.0.1/x"}, "sink.user"),
        ({"url": "oracle://127.0.0.1/x"}, "postgresql://"),
    ],
)
def test_what_cannot_work_is_refused(
    scenario: Make, tmp_path: Any, change: dict[str, Any], named: str
) -> None:
    case = pipeline_into(scenario, Target("postgresql", tmp_path))
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    case.options["sink"] |= change
    case.write_file()
    assert "secret" not in refusal(case.command("run", "--once"), named)
