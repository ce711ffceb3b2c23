"""A pipeline whose source writes statements instead of rows: what may have changed without row events is
parked or read again, and everything else is equal.

Each table is the only one of its database, so that a table is parked for its own form alone: the servers say
which databases a statement wrote to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing import oracle, servers
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import DatabaseServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Quick: `sources/mysql/test_statement_format.py`, which has the same statements without Spark.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FORMS: dict[str, tuple[str, ...]] = {
    "view": ("UPDATE src.to_view SET v = v + 1",),
    "fired": ("INSERT INTO src.fires (v) VALUES (1)",),
    "called": ("SELECT src.f()",),
    "inside": ("CALL src.p()",),
    "loaded": ("LOAD DATA LOCAL INFILE '{file}' INTO TABLE src.to_load",),
    "joined": ("UPDATE src.few, joined.t_joined AS x SET x.v = x.v + 1 WHERE x.id = few.id",),
    "picked": (
        "CREATE TEMPORARY TABLE src.some (id INT PRIMARY KEY)",
        "INSERT INTO src.some VALUES (1), (2)",
        "DELETE FROM picked.t_picked WHERE id IN (SELECT id FROM src.some)",
    ),
    "cut": ("UPDATE /* {long} */ src.to_cut SET v = v + 1",),
    "scheduled": (
        "CREATE EVENT src.e ON SCHEDULE AT CURRENT_TIMESTAMP DO UPDATE src.to_scheduled SET v = v + 1",
        "SET GLOBAL event_scheduler = ON",
    ),
}
"""By the database that they write, whose table is `t_` and its name."""
EQUAL = ("rows",)
"""Written by rows, and by definitions."""
VIEWS = {"to_view": "view", "to_load": "loaded", "to_cut": "cut", "to_scheduled": "scheduled"}


@dataclass
class Outcome:
    case: Scenario
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


def _create(server: DatabaseServer) -> None:
    names = (*FORMS, *EQUAL)
    for name in names:
        server.execute(
            f"CREATE DATABASE `{name}`",
            f"CREATE TABLE `{name}`.t_{name} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO `{name}`.t_{name} VALUES (1, 1), (2, 2), (3, 3)",
        )
    server.execute(
        "CREATE DATABASE src",
        "CREATE TABLE src.fires (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "CREATE TABLE src.few (id INT PRIMARY KEY)",
        "INSERT INTO src.few VALUES (1)",
        *(f"CREATE VIEW src.{view} AS SELECT * FROM {name}.t_{name}" for view, name in VIEWS.items()),
        "CREATE TRIGGER src.fire AFTER INSERT ON src.fires FOR EACH ROW UPDATE fired.t_fired SET v = v + 1",
        "CREATE FUNCTION src.f() RETURNS INT DETERMINISTIC BEGIN UPDATE called.t_called SET v = v + 1; "
        "RETURN 1; END",
        "CREATE PROCEDURE src.p() BEGIN UPDATE inside.t_inside SET v = v + 1; END",
        "CREATE TABLE `rows`.t_parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
        "INSERT INTO `rows`.t_parts VALUES (5, 5), (15, 15)",
    )


def _run(server: DatabaseServer, folder: Path, format_: str, *, skips: tuple[str, ...] = ()) -> None:
    rows = folder / "rows.tsv"
    for number, (form, statements) in enumerate(FORMS.items()):
        if form in skips:
            continue
        rows.write_text(f"{1000 + number + (format_ == 'ROW') * 100}\t8\n")
        with server.connect(local_infile=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_format = {format_}")
            for sql in statements:
                cursor.execute(sql.format(file=rows, long="x" * 5000))


@pytest.fixture(scope="module")
def outcome(
    spark: SparkSession, lake_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outcome]:
    folder = tmp_path_factory.mktemp("statement_format")
    options = {"log_bin_trust_function_creators": "ON", "local_infile": "ON"}
    with servers.FLAVORS["mysql80"](options) as server:
        _create(server)
        case = Scenario(server, "rows", folder, spark, lake_root)
        case.write_file(tables=[f"{name}.*" for name in (*FORMS, *EQUAL)])
        found = Outcome(case)
        with case.running() as pipeline:
            case.drain(pipeline)
            _run(server, folder, "ROW", skips=("scheduled",))
            case.drain(pipeline)
            found.before = _tables(case)
            server.execute("SET GLOBAL binlog_format = STATEMENT")
            scheduled = "SELECT * FROM scheduled.t_scheduled"
            old = server.query(scheduled)
            _run(server, folder, "STATEMENT")
            wait_for(lambda: server.query(scheduled) != old, "the event")
            server.execute(
                "SET GLOBAL event_scheduler = OFF", "SET GLOBAL binlog_format = ROW",
                "SET SESSION binlog_format = STATEMENT", "INSERT INTO src.few VALUES (7)",
            )  # fmt: skip
            long = "z" * 300_000
            server.execute(
                f"ALTER TABLE `rows`.t_parts /* {long} */ DROP PARTITION p0",
                "UPDATE `rows`.t_rows SET v = v + 1",
            )  # fmt: skip
            case.drain(pipeline)
            pipeline.wait_until(
                lambda s: all(one["status"] != "reading" for one in s["tables"]) and s["snapshot"]["done"],
                "tables to be read again", seconds=300,
            )  # fmt: skip
            case.drain(pipeline)
            found.after = _tables(case)
            assert pipeline.stop() == 0
        yield found


def _tables(case: Scenario) -> dict[str, Any]:
    return {one["table"]: one for one in case.status()["tables"]}


def _difference(case: Scenario, table: str) -> str:
    columns = oracle.columns_of(case.server, table)
    frame = case.target(table.partition(".")[2]).select(*[f"`{column.name}`" for column in columns])
    found = oracle.canonical_rows((tuple(row) for row in frame.toLocalIterator()), columns)
    return oracle.compare(oracle.rows_of(case.server, table), found)


def test_in_row_format_nothing_is_parked(outcome: Outcome) -> None:
    assert {one["status"] for one in outcome.before.values()} == {"live"}


def test_every_table_is_equal_or_parked_with_the_statement_in_the_reason(outcome: Outcome) -> None:
    for name, table in outcome.after.items():
        if table["status"] == "parked":
            assert "statement format" in table["parked"]["reason"] and "`" in table["parked"]["reason"]
            assert f"resnapshot FILE {name}" in table["parked"]["hint"]
        else:
            assert not _difference(outcome.case, name), name


def test_each_form_parks_the_table_that_it_wrote_and_no_other(outcome: Outcome) -> None:
    parked = {name for name, one in outcome.after.items() if one["status"] == "parked"}
    assert parked == {f"{form}.t_{form}" for form in FORMS}
