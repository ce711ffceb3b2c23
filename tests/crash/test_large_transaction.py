"""One transaction of a million rows, with kill -9 of the receiver and of the driver in the middle of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000_000
WIDTH = 150
MEMORY_MB = 300
INSERT = """
    INSERT INTO shop.big WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
    SELECT i, REPEAT(CHAR(97 + i % 26), {width}) FROM n
"""
FILL = (f"SET cte_max_recursion_depth = {ROWS}", INSERT.format(rows=ROWS, width=WIDTH))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_row_transaction_crashed_in_the_middle_neither_doubles_nor_loops(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    server = mysql_factory()
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.big (id INT PRIMARY KEY, v CHAR(200))")
    scenario = Scenario(server, "shop", tmp_path, spark, lake_root, "parquet")
    with scenario.running() as pipeline, largest(pipeline) as memory:
        pipeline.wait_until(lambda status: status["snapshot"]["done"], "the snapshot", seconds=120)
        log = RelayLog.open(pipeline.config.relay_log_path)
        before = log.refresh()
        server.execute(*FILL)
        state = StateStore(pipeline.config.state, read_only=True)
        try:
            for _ in range(2):
                # The transaction is in the log and its epoch is planned: Spark is in the middle of it.
                wait_for(lambda: pipeline.ensure_alive() or state.has_pending(), "the epoch", seconds=120)
                assert pipeline.kill("driver")
                pipeline.wait(seconds=60)
                pipeline.start()
        finally:
            state.close()
        scenario.drain(pipeline, restart=True)
        assert log.refresh() > before
        pipeline.stop()
    found = scenario.target("big").selectExpr(
        "count(*)", "count(DISTINCT id)", "count(DISTINCT _sequence)", "sum(length(v))", "max(id)"
    )
    assert tuple(found.collect()[0]) == (ROWS, ROWS, ROWS, ROWS * WIDTH, ROWS)
    assert 0 < memory["receiver"] <= MEMORY_MB and 0 < memory["worker"] <= MEMORY_MB, memory


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_receiver_killed_inside_a_million_row_transaction_begins_it_again(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    server = mysql_factory()
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.big (id INT PRIMARY KEY, v CHAR(200))")
    scenario = Scenario(server, "shop", tmp_path, spark, lake_root, "iceberg")
    with scenario.running() as pipeline, largest(pipeline) as memory:
        pipeline.wait_until(lambda status: status["snapshot"]["done"], "the snapshot", seconds=120)
        folder = pipeline.config.relay_log_path
        writer = threading.Thread(target=server.execute, args=FILL)
        size = stored(folder)
        writer.start()
        for _ in range(2):
            wait_for(
                lambda: stored(folder) > size + 4_000_000 and pipeline.kill("receiver"),
                "a receiver with some megabytes of the transaction",
                seconds=120,
            )
        writer.join()
        scenario.drain(pipeline, restart=True)
        pipeline.stop()
    found = scenario.target("big").selectExpr("count(*)", "count(DISTINCT id)", "sum(length(v))")
    assert tuple(found.collect()[0]) == (ROWS, ROWS, ROWS * WIDTH)
    assert 0 < memory["receiver"] <= MEMORY_MB and 0 < memory["worker"] <= MEMORY_MB, memory


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.binlog"))


@contextmanager
def largest(pipeline: RunningPipeline) -> Iterator[dict[str, int]]:
    """The most memory that receiver and workers have been seen with."""
    most = {"receiver": 0, "worker": 0}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for name, size in pipeline.resident_mb().items():
                most[name] = max(most[name], size)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()
