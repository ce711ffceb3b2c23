"""Snapshots that are considerate to the source: whole pipelines."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios.topology import ROWS, TABLES, Writers, pair, replicate

from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import DatabaseServer, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READS = (
    "SELECT COUNT_STAR FROM performance_schema.events_statements_summary_global_by_event_name"
    " WHERE EVENT_NAME = 'statement/com/Execute'"  # nobody else uses the binary protocol
)


def chunk_reads(server: DatabaseServer) -> int:
    return int(server.query(READS)[0][0])


def address(server: DatabaseServer) -> str:
    return f"{server.host}:{server.port}"


def paused_by(limit: str) -> Any:
    return lambda status: status["snapshot"]["paused_by"] == limit


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("order", ["ON", "OFF"])
def test_chunks_come_from_a_replica_while_the_log_comes_from_the_source(
    order: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    """`order`: slave_preserve_commit_order. The replica is away at first, then it lags: the source is not
    read in its stead."""
    parallel = {
        "slave_parallel_type": "LOGICAL_CLOCK",
        "slave_parallel_workers": 4,
        "slave_preserve_commit_order": order,
        "binlog_transaction_dependency_tracking": "WRITESET",
        "transaction_write_set_extraction": "XXHASH64",
        "performance_schema": "ON",  # who was asked what
    }
    with pair("mysql80", **parallel) as (primary, replica):
        wait_for(lambda: replica.gtid_executed() == primary.gtid_executed(), "the replica")
        replica.execute("STOP SLAVE", "RESET SLAVE ALL")
        snapshot = {
            "chunk_rows": ROWS // 20,
            "hosts": ["127.0.0.1:1", address(replica)],
            "load": {"replica_lag_max": "60s", "replicas": [address(replica)]},
        }
        case = Scenario(primary, "shop", tmp_path, spark, lake_root, options={"snapshot": snapshot})
        with case.running() as pipeline, Writers(primary, 4) as writers:
            status = pipeline.wait_until(paused_by("hosts"), "the wait for a host", seconds=300)
            assert "replicates from no server" in status["snapshot"]["throttled"]
            replicate(primary, replica)
            replica.execute("STOP SLAVE SQL_THREAD")
            status = pipeline.wait_until(paused_by("replica_lag"), "the wait for the lag", seconds=60)
            assert status["snapshot"]["chunks_read"] == 0 and chunk_reads(replica) == 0
            replica.execute("START SLAVE SQL_THREAD")
            pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=400)
            seen = writers.committed
            wait_for(lambda: writers.committed > seen + 100, "more writes")
            writers.stop()
            case.drain(pipeline)
            assert pipeline.stop() == 0
        case.assert_equal(*TABLES)
        assert chunk_reads(replica) >= 10 and chunk_reads(primary) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_snapshot_waits_for_the_load_to_go_and_goes_on(
    spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with MySqlServer() as server, ExitStack() as stack:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, state INT)")
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO shop.orders VALUES (%s, 1)", [(n,) for n in range(2000)])
        busy = [stack.enter_context(server.connect()) for _ in range(12)]
        for connection in busy:  # statements that last, as the server sees it
            connection._execute_command(3, "SELECT SLEEP(3600)")  # type: ignore[attr-defined]
        snapshot = {"chunk_rows": 100, "load": {"threads_running_max": 10}}
        options = {"snapshot": snapshot}
        case = Scenario(server, "shop", tmp_path, spark, lake_root, options=options)
        with case.running() as pipeline:
            status = pipeline.wait_until(paused_by("threads_running"), "the load", seconds=300)
            assert status["snapshot"]["chunks_read"] == 0
            assert "Threads_running" in status["snapshot"]["throttled"]
            server.execute("UPDATE shop.orders SET state = 2 WHERE id < 50")
            for connection in busy:
                server.execute(f"KILL {connection.thread_id()}")
            status = case.drain(pipeline)
            assert status["snapshot"]["throttled"] is None
            assert pipeline.stop() == 0
        case.assert_equal("orders")
