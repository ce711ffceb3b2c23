"""Logs whose row images lack columns (`binlog_row_image` MINIMAL and NOBLOB)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing.meanwhile import meanwhile
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1500

CREATE = """CREATE TABLE d.t (
    a INT NOT NULL, b VARCHAR(20) NOT NULL DEFAULT 'möglich', c DECIMAL(10, 2) DEFAULT 1.50, d TEXT, e JSON,
    f TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
    g ENUM('x', 'y') DEFAULT 'y', h BIT(3) DEFAULT b'101', i BINARY(4) DEFAULT 'ab',
    j DATE DEFAULT '2020-02-29', k BLOB, l INT,
    m INT AS (l * 2) STORED, n DOUBLE NOT NULL DEFAULT 0.25, o BIGINT UNSIGNED DEFAULT 18446744073709551615,
    PRIMARY KEY (b, a))"""

STATEMENTS = (
    "UPDATE d.t SET c = c + 1 WHERE a = {n}",
    "UPDATE d.t SET d = REPEAT('d', {n} % 50), e = JSON_OBJECT('n', {n}) WHERE a BETWEEN {n} AND {n} + 20",
    "UPDATE d.t SET l = {n}, k = NULL WHERE a = {n}",
    "UPDATE d.t SET g = NULL, i = X'00ff' WHERE a % 97 = {n} % 97",
    "INSERT IGNORE INTO d.t (a, b) VALUES ({n}, 'möglich')",
    "INSERT IGNORE INTO d.t (a, b, c) VALUES ({n} + 5000, 'ü', DEFAULT)",
    "INSERT IGNORE INTO d.t (a, l) VALUES ({n} + 7000, {n})",
    "REPLACE INTO d.t (a, b, l) VALUES ({n}, 'möglich', 3)",
    "DELETE FROM d.t WHERE a = {n}",
)


class Changes:
    """Random statements, in small and large transactions."""

    def __init__(self, server: MySqlServer, seed: int, settings: str) -> None:
        self._settings = settings
        self._server, self._chance = server, random.Random(seed)
        self.done = 0

    def run(self, ending: threading.Event) -> None:
        with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(self._settings)
            while not ending.wait(0.05):
                for _ in range(self._chance.choice((1, 1, 2, 30))):
                    statement = self._chance.choice(STATEMENTS)
                    cursor.execute(statement.format(n=self._chance.randrange(ROWS)))
                    self.done += 1
                connection.commit()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "sink"),
    [
        ("MINIMAL", "iceberg"),
        ("SESSION", "iceberg"),
        ("NOBLOB", "iceberg"),
        ("MINIMAL", "delta"),
    ],
)
def test_rows_are_completed_while_the_table_is_read_and_written(
    mysql_factory: Callable[..., MySqlServer],
    spark: SparkSession,
    lake_root: Path,
    tmp_path: Path,
    image: str,
    sink: str,
) -> None:
    """`SESSION`: the source says FULL, and a session of its own writes MINIMAL ones all the same."""
    server = mysql_factory(binlog_row_image="FULL" if image == "SESSION" else image)
    numbers = f"WITH RECURSIVE r AS (SELECT 0 n UNION ALL SELECT n + 1 FROM r WHERE n < {ROWS - 1})"
    server.execute(
        "CREATE DATABASE d", CREATE, "SET SESSION cte_max_recursion_depth = 100000",
        f"INSERT INTO d.t (a, d, k, l) {numbers} SELECT n, HEX(n), UNHEX(MD5(n)), n FROM r",
    )  # fmt: skip
    case = Scenario(server, "d", tmp_path, spark, lake_root, sink, {"snapshot": {"chunk_rows": 200}})
    changes = Changes(
        server, seed=7, settings="SET binlog_row_image = MINIMAL" if image == "SESSION" else "DO 0"
    )
    with case.running() as pipeline:
        with meanwhile(changes.run):
            pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=200)
            wait_for(lambda: changes.done > 100, "a hundred changes")
        case.drain(pipeline)
        pipeline.stop()
    assert [table["parked"] for table in case.status()["tables"]] == [None]
    case.assert_equal("t")


@pytest.mark.slow
def test_an_update_without_its_row_is_said_and_the_table_stops(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    server = mysql_factory(binlog_row_image="MINIMAL")
    server.execute("CREATE DATABASE d", CREATE, "INSERT INTO d.t (a) VALUES (1)")
    file, position = server.position()
    case = Scenario(
        server, "d", tmp_path, spark, lake_root, options={"snapshot": {"mode": "never"}},
        source_options={"start": {"file": file, "position": position}},
    )  # fmt: skip
    server.execute("UPDATE d.t SET l = 5 WHERE a = 1")
    done = case.command("run", "--once")
    assert done.returncode == 4
    assert "binlog_row_image" in done.stderr and "no such row" in done.stderr and "resnapshot" in done.stderr
