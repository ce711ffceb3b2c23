"""XA transactions from begin to end through a pipeline, where the server is restarted between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing import servers
from penstock.testing.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prepare(server: servers.DatabaseServer, name: str, *statements: str) -> None:
    """In a session that ends with it."""
    server.execute(f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flavor_name", ["mariadb1011", "mariadb118"])
def test_xa_rows_arrive_with_their_commit_also_after_a_restart_of_the_server(
    flavor_name: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    durable = {"innodb_flush_log_at_trx_commit": 1, "sync_binlog": 1}
    with servers.FLAVORS[flavor_name](durable) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, state VARCHAR(40))",
            *(f"INSERT INTO d.t VALUES ({n}, 'new')" for n in range(1, 200)),
        )
        case = Scenario(server, "d", tmp_path, spark, lake_root)
        with case.running() as pipeline:
            pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=300)
            prepare(
                server, "kept", "UPDATE d.t SET state = 'kept' WHERE id < 20", "DELETE FROM d.t WHERE id = 20"
            )
            prepare(server, "gone", "UPDATE d.t SET state = 'gone' WHERE id BETWEEN 30 AND 40")
            prepare(
                server,
                "late",
                "INSERT INTO d.t VALUES (1000, 'late')",
                "UPDATE d.t SET id = 1001 WHERE id = 50",
            )
            server.execute("UPDATE d.t SET state = 'meanwhile' WHERE id BETWEEN 100 AND 120")
            case.drain(pipeline)
            case.assert_equal("t")
            server.restart()
            server.execute(
                "UPDATE d.t SET state = 'after' WHERE id = 101", "XA COMMIT 'kept'", "XA ROLLBACK 'gone'"
            )
            server.execute(
                "XA START 'once'", "UPDATE d.t SET state = 'once' WHERE id < 10", "XA END 'once'",
                "XA COMMIT 'once' ONE PHASE",
            )  # fmt: skip
            server.execute("UPDATE d.t SET state = 'over' WHERE id BETWEEN 15 AND 35")
            case.drain(pipeline)
            case.assert_equal("t")
            server.execute("XA COMMIT 'late'", "UPDATE d.t SET state = 'last' WHERE id = 1000")
            case.drain(pipeline)
            pipeline.stop()
        case.assert_equal("t")
        assert case.target("t").where("state = 'last' OR state = 'gone'").count() == 1
