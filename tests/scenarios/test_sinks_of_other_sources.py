"""Tables of each release of the source in a database of another maker. The judge is the SELECT of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.test_sql import Target, assert_equal

from penstock.testing import servers
from penstock.testing.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, big BIGINT UNSIGNED, price DECIMAL(20,4), ratio DOUBLE, note TEXT,"
    " small VARCHAR(40) CHARACTER SET latin1, bytes VARBINARY(40), day DATE, at DATETIME(6),"
    " seen TIMESTAMP(3) NULL, spent TIME(2), kind ENUM('a','ü'), flags SET('x','y'), bits BIT(9), y YEAR)"
)
ROWS = (
    "INSERT INTO t VALUES (1, 18446744073709551615, -0.0001, 0.1, 'käse 🧀', 'é', X'00FF', '1000-01-01',"
    " '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999', '-838:59:59', 'ü', 'x,y', 511, 2155),"
    " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
    " (3, 0, 9999999999999999.9999, -1e300, '', '', '', '2024-02-29', '1000-01-01', '1970-01-02', '0:0:0',"
    " 'a', '', 0, 1901)"
)


@pytest.mark.parametrize("source", ["mysql57", "mysql97", "mariadb1011"])
def test_rows_are_kept_equal_over_a_kill_and_changed_definitions(
    source: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    target = Target("postgresql", tmp_path)
    with servers.FLAVORS[source]() as server:
        database = f"from_{source}"
        server.execute(
            f"CREATE DATABASE {database} DEFAULT CHARACTER SET utf8mb4",
            f"USE {database}",
            "SET time_zone = '+00:00'",
            TABLE,
            ROWS,
        )
        options = {"sink": target.options, "schema": {"history_table": f"penstock.{database}"}}
        case = Scenario(server, database, tmp_path, spark, lake_root, "jdbc", options)
        with case.running() as pipeline:
            case.drain(pipeline)
            assert_equal(case, target, "t")
            change = f"UPDATE {database}.t SET big = id, note = CONCAT(note, 'more'), at = NULL WHERE id <> 2"
            server.execute(change, f"ALTER TABLE {database}.t ADD COLUMN n INT NOT NULL DEFAULT 5 AFTER id")
            pipeline.kill("driver")
            pipeline.wait(seconds=60)
            pipeline.start()
            server.execute(
                f"UPDATE {database}.t SET id = 20, n = 6 WHERE id = 2",
                f"DELETE FROM {database}.t WHERE id = 3",
                f"ALTER TABLE {database}.t DROP COLUMN bits, MODIFY small VARCHAR(80)",
                f"INSERT INTO {database}.t (id, n, y) VALUES (4, 4, 2000)",
            )
            case.drain(pipeline)
            assert pipeline.stop() == 0
        assert_equal(case, target, "t")
