"""The first snapshot of many small tables, which change meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from penstock.testing.meanwhile import meanwhile
from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database

pytestmark = pytest.mark.timeout(900)

ROWS = 10
SLOW = {"rows_per_second": 60}
"""So that the kill comes in the midst of it."""


def fill(server: Any, tables: list[str]) -> None:
    for number, table in enumerate(tables):
        key = "VARCHAR(20)" if number % 3 == 0 else "INT"
        rows = ", ".join(f"('{row}', 'first', {row})" for row in range(ROWS))
        server.execute(
            f"CREATE TABLE {table} (id {key} PRIMARY KEY, a VARCHAR(40), b DECIMAL(9, 2))",
            f"INSERT INTO {table} VALUES {rows}" if number % 10 else f"ALTER TABLE {table} COMMENT 'empty'",
        )


def change(server: Database, tables: list[str], seed: int) -> Callable[[Event], None]:
    """Rows of all tables come, go, change and get other keys; with each seed different ones."""
    chance = random.Random(seed)

    def work(ending: Event) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            number = seed * 1_000_000
            while not ending.is_set():
                number += 1
                table, row = chance.choice(tables), chance.randrange(ROWS)
                statement = chance.choice(
                    (
                        f"INSERT INTO {table} VALUES ('{number}', 'new', 0)",
                        f"UPDATE {table} SET a = 'changed {number}' WHERE id = '{row}'",
                        f"UPDATE {table} SET id = '{number}' WHERE id = '{row}'",
                        f"DELETE FROM {table} WHERE id = '{row}'",
                        f"REPLACE INTO {table} VALUES ('{row}', 'again', {number % 1000})",
                    )
                )
                cursor.execute(statement)
                ending.wait(0.02)

    return work


def appended_here(case: Scenario, table: str) -> bool:
    """Whether the rows that were read came without a Spark job."""
    sql = f"SELECT summary FROM lake.{case.namespace}.`{table}`.snapshots ORDER BY committed_at LIMIT 1"
    return bool(case.spark.sql(sql).collect()[0][0].get("penstock.small"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sink", "count"),
    [
        ("iceberg", 16),
        ("iceberg", 60),
        ("delta", 24),
    ],
)
def test_changed_while_they_are_read_and_killed_in_the_midst_all_are_equal_at_the_end(
    scenario: Callable[..., Scenario], sink: str, count: int
) -> None:
    case = scenario(sink, snapshot=SLOW)
    server, tables = case.server, [f"t{number:02d}" for number in range(count)]
    assert isinstance(server, Database)
    fill(server, tables)
    with case.running() as pipeline:
        with meanwhile(change(server, tables, 1), change(server, tables, 2)):
            half = pipeline.wait_until(
                lambda status: len(tables) // 4 <= status["snapshot"]["chunks_read"] < len(tables),
                "some tables to be read",
                seconds=300,
            )
            assert half["snapshot"]["chunks_read"] < len(tables) and pipeline.kill("driver")
            case.write_file(snapshot={})  # without the limit
            pipeline.start()
            pipeline.wait_until(lambda status: status["snapshot"]["done"], "the snapshot", seconds=300)
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal(*tables)
    if sink == "iceberg":
        assert all(appended_here(case, table) for table in tables[1:6])
