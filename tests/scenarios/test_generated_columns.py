"""Generated columns that the log leaves out (MariaDB 11: of updates and deletions)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing import servers
from penstock.testing.scenario import Scenario, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = """CREATE TABLE d.t (
    id INT PRIMARY KEY, net DECIMAL(10,2), rate FLOAT, name VARCHAR(40) CHARACTER SET latin1, at DATETIME(3),
    gross DECIMAL(12,4) AS (net * rate) STORED, shout VARCHAR(50) AS (CONCAT(UPPER(name), '!')) STORED,
    day DATE AS (CAST(at AS DATE)) VIRTUAL, label VARCHAR(80) AS (CONCAT(shout, gross)) STORED)"""
ACCOUNT = (
    "CREATE USER 'reader'@'127.0.0.1' IDENTIFIED BY 'penstock'",
    "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.* TO 'reader'@'127.0.0.1'",
)


def change(server: servers.DatabaseServer, n: int) -> None:
    server.execute(
        f"UPDATE d.t SET net = net + {n}.25 WHERE id % 3 = {n} % 3",
        f"UPDATE d.t SET name = 'Müller {n}', at = '2024-02-{n + 10} 23:59:59.999' WHERE id % 7 = 1",
        f"UPDATE d.t SET id = id + 1000 WHERE id = {n * 10}",
        f"DELETE FROM d.t WHERE id = {n * 11}",
        f"INSERT INTO d.t (id, net) VALUES ({n * 5}, 1) ON DUPLICATE KEY UPDATE net = 9, name = NULL",
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_generated_columns_that_updates_leave_out_are_computed_by_the_server(
    spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with servers.FLAVORS["mariadb118"]() as server:
        server.execute(
            "CREATE DATABASE d", *ACCOUNT, CREATE,
            *(f"INSERT INTO d.t (id, net, rate, name, at) VALUES ({n}, {n} / 3, 1.19, 'é{n}', NOW(3))"
              for n in range(1, 300)),
        )  # fmt: skip
        source = {
            "host": server.host, "port": server.port, "user": "reader", "password": "penstock",
        }  # fmt: skip
        case = Scenario(server, "d", tmp_path, spark, lake_root, options={"source": source})
        with case.running() as pipeline:
            pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=300)
            change(server, 1)
            # Without the privilege the table stops with the statement that mends it.
            parked = pipeline.wait_until(lambda s: s["tables"][0]["parked"], "parking", seconds=200)
            hint, start = parked["tables"][0]["parked"]["hint"], parked["tables"][0]["start"]
            assert "GRANT CREATE TEMPORARY TABLES ON `d`.* TO" in hint, hint
            server.execute("GRANT CREATE TEMPORARY TABLES ON d.* TO 'reader'@'127.0.0.1'")
            assert case.command("resnapshot", "d.t").returncode == 0
            pipeline.wait_until(
                lambda s: s["tables"][0]["start"] > start and s["snapshot"]["done"],
                "the second snapshot",
                seconds=300,
            )
            for n in range(2, 12):
                change(server, n)
            case.drain(pipeline)
            case.assert_equal("t")
            # Nothing but an expression changes: what comes later is computed by the new one.
            server.execute("ALTER TABLE d.t MODIFY shout VARCHAR(50) AS (CONCAT(LOWER(name), '?')) STORED")
            change(server, 12)
            case.drain(pipeline)
            wait_for(lambda: not case.difference("t"), "the table to be read again", seconds=200)
            change(server, 13)
            case.drain(pipeline)
            pipeline.stop()
        assert case.status()["tables"][0]["parked"] is None
        case.assert_equal("t")
