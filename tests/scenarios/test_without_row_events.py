"""Changes that come without plain row events, one pipeline over all of them: each table is one hazard.

XA, statements instead of rows, rows taken back, tables of engines without transactions, and events that are
nobody's. What the log does not tell is said (the table is parked or read again); everything else is equal.
Statements in statement format are about a database of their own: they park all of it
(`test_statement_format.py` has the ways in which they write more than they name).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STATEMENTS = {
    "s_insert": "INSERT INTO s_insert VALUES (9, 9)",
    "s_update": "UPDATE s_update SET v = v + 1",
    "s_delete": "DELETE FROM s_delete WHERE id = 1",
    "s_replace": "REPLACE INTO s_replace SELECT id, v + 5 FROM s_left",
    "s_load": "LOAD DATA LOCAL INFILE '{file}' INTO TABLE s_load",
    "s_left": "UPDATE s_left, s_right SET s_left.v = 7, s_right.v = 8 WHERE s_left.id = s_right.id",
}
PARKED = {*STATEMENTS, "s_right", "s_mixed"}
EQUAL = ["x_committed", "x_one", "x_rolled_back", "x_both", "other", "isam", "savepoint_", "born"]


@dataclass
class Outcome:
    case: Scenario
    status: dict[str, Any] = field(default_factory=dict)
    while_prepared: dict[str, int] = field(default_factory=dict)


def _create(case: Scenario) -> None:
    case.server.execute(f"CREATE DATABASE {case.database}_s")
    tables = [f"{case.database}_s.{table}" for table in PARKED] + EQUAL
    for table in tables:
        if table not in ("born", "isam"):
            case.server.execute(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
                f"INSERT INTO {table} VALUES (1, 1), (2, 2)",
            )
    case.server.execute(
        "CREATE TABLE isam (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
        "INSERT INTO isam VALUES (1, 1)",
        "CREATE TABLE hole (id INT PRIMARY KEY, v INT) ENGINE=BLACKHOLE",
    )


def _xa(case: Scenario) -> list[Any]:
    """Prepared in the stream; the sessions that hold them."""
    held = []
    for name, statement in (
        ("a", "INSERT INTO x_committed VALUES (3, 3), (4, 4)"),
        ("b", "UPDATE x_rolled_back SET v = 100"),
        ("c", "UPDATE x_both SET v = v + 10 WHERE id = 1"),
    ):
        connection = case.server.connect()
        with connection.cursor() as cursor:
            for sql in (f"XA START '{name}'", statement, f"XA END '{name}'", f"XA PREPARE '{name}'"):
                cursor.execute(sql)
        held.append(connection)
    case.server.execute(
        "XA START 'one'", "DELETE FROM x_one WHERE id = 2", "XA END 'one'", "XA COMMIT 'one' ONE PHASE",
        "UPDATE x_both SET v = 50 WHERE id = 2", "INSERT INTO other VALUES (3, 3)",
    )  # fmt: skip
    return held


def _ends(held: list[Any]) -> None:
    for connection, sql in zip(held, ("XA COMMIT 'a'", "XA ROLLBACK 'b'", "XA COMMIT 'c'"), strict=True):
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)


def _hazards(case: Scenario, folder: Path) -> None:
    rows = folder / "rows.tsv"
    rows.write_text("8\t8\n")
    for sql in STATEMENTS.values():
        with case.server.connect(local_infile=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_format = STATEMENT")
            cursor.execute(f"USE {case.database}_s")
            cursor.execute(sql.format(file=rows))
    case.server.execute(
        "SET SESSION binlog_format = MIXED", f"USE {case.database}_s", "UPDATE s_mixed SET v = v + 1"
    )
    case.server.execute(
        "INSERT INTO isam VALUES (2, 2)", "UPDATE isam SET v = v + 1", "DELETE FROM isam WHERE id = 1",
        "BEGIN", "INSERT INTO other VALUES (10, 10)", "ROLLBACK",
        "BEGIN", "INSERT INTO savepoint_ VALUES (3, 3)", "SAVEPOINT one",
        "INSERT INTO savepoint_ VALUES (4, 4)", "ROLLBACK TO one", "COMMIT",
        "CREATE TEMPORARY TABLE scratch (id INT PRIMARY KEY, v INT)", "INSERT INTO scratch VALUES (1, 1)",
        "INSERT INTO other SELECT id + 20, v FROM scratch",
    )  # fmt: skip
    case.server.execute(
        "SET SESSION binlog_rows_query_log_events = ON",
        "CREATE TABLE born (id INT PRIMARY KEY, v INT)",
        "INSERT INTO born SELECT id, v FROM other",
        "INSERT INTO born VALUES (77, 7)",
        "INSERT INTO hole VALUES (1, 1)",
        "DELETE FROM other WHERE id = 4711",  # no row
        f"CREATE DATABASE IF NOT EXISTS {case.database}_ignored",
        f"CREATE TABLE {case.database}_ignored.t (id INT)",
        f"INSERT INTO {case.database}_ignored.t VALUES (1)",
        f"DROP DATABASE {case.database}_ignored",
    )


@pytest.fixture(scope="module")
def outcome(
    mysql_server: MySqlServer, spark: SparkSession, lake_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outcome]:
    folder = tmp_path_factory.mktemp("without_rows")
    database = Database(mysql_server)
    case = Scenario(database, database.name, folder, spark, lake_root)
    case.write_file(
        tables={
            "include": [f"{case.database}.*", f"{case.database}_s.*"],
            "exclude": [f"{case.database}.hole"],
        }
    )
    _create(case)
    found = Outcome(case)
    with case.running() as pipeline:
        case.drain(pipeline)
        held = _xa(case)
        case.drain(pipeline)
        found.while_prepared = {table: case.target(table).count() for table in ("x_committed", "x_one")}
        _ends(held)
        _hazards(case, folder)
        case.drain(pipeline)
        found.status = case.status()
        assert pipeline.stop() == 0
    yield found
    case.server.execute(f"DROP DATABASE {case.database}_s")
    database.drop()


def parked(outcome: Outcome) -> dict[str, dict[str, Any]]:
    tables = [one for one in outcome.status["tables"] if one["status"] == "parked"]
    return {one["table"].partition(".")[2]: one["parked"] for one in tables}


def test_rows_of_a_prepared_transaction_come_with_its_xa_commit_and_not_before(outcome: Outcome) -> None:
    assert outcome.while_prepared == {"x_committed": 2, "x_one": 1}
    outcome.case.assert_equal("x_committed", "x_both")
    assert outcome.case.target("x_committed").count() == 4


def test_a_prepared_transaction_that_is_rolled_back_never_shows(outcome: Outcome) -> None:
    outcome.case.assert_equal("x_rolled_back")


def test_an_xa_commit_in_one_phase_is_an_ordinary_transaction(outcome: Outcome) -> None:
    outcome.case.assert_equal("x_one")


def test_a_transaction_committed_between_prepare_and_commit_comes_before_it(outcome: Outcome) -> None:
    rows = {row["id"]: row["_sequence"] for row in outcome.case.target("x_both").collect()}
    assert rows[2] < rows[1]


@pytest.mark.parametrize("table", sorted(PARKED))
def test_a_table_changed_by_a_statement_is_parked_with_the_cure(outcome: Outcome, table: str) -> None:
    one = parked(outcome)[table]
    assert "statement format" in one["reason"] and table in one["reason"]
    assert f"resnapshot FILE {outcome.case.database}_s.{table}" in one["hint"]


def test_no_other_table_is_parked(outcome: Outcome) -> None:
    assert set(parked(outcome)) == PARKED


@pytest.mark.parametrize("table", EQUAL)
def test_everything_else_is_equal(outcome: Outcome, table: str) -> None:
    outcome.case.assert_equal(table)
