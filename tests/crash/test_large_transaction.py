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


XA_BYTES = 1 << 30
XA_WIDTH = 10_000
XA_MEMORY_MB = 500
_XA_ROWS = 5000
_XA_FILL = tuple(
    "INSERT INTO shop.big WITH RECURSIVE n (i) AS"
    f" (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {first + _XA_ROWS - 1})"
    f" SELECT i, REPEAT(CHAR(97 + i % 26), {XA_WIDTH}) FROM n"
    for first in range(1, XA_BYTES // XA_WIDTH + _XA_ROWS, _XA_ROWS)
)


XA_PREPARED = (
    f"SET cte_max_recursion_depth = {2 * _XA_ROWS}",
    "XA START 'g'",
    *_XA_FILL,
    "XA END 'g'",
    "XA PREPARE 'g'",
)


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

        def planned() -> bool:
            pipeline.ensure_alive()
            return state.has_pending()

        try:
            for _ in range(2):
                # The transaction is in the log and its epoch is planned: Spark is in the middle of it.
                wait_for(planned, "the epoch", seconds=120)
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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_prepared_transaction_of_a_gigabyte_takes_little_memory_and_is_there_after_its_commit(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    """The receiver is killed after it has spooled it, and once more while it copies it into the log."""
    server = mysql_factory()
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.big (id INT PRIMARY KEY, v MEDIUMTEXT)")
    scenario = Scenario(server, "shop", tmp_path, spark, lake_root, "parquet")
    with scenario.running() as pipeline, largest(pipeline) as memory:
        pipeline.wait_until(lambda status: status["snapshot"]["done"], "the snapshot", seconds=120)
        folder = pipeline.config.relay_log_path
        server.execute(*XA_PREPARED)
        log = RelayLog.open(folder)
        wait_for(lambda: (log.refresh(), log.prepared)[1], "the prepared transaction", seconds=300)
        assert log.prepared[0].length >= XA_BYTES
        assert pipeline.kill("receiver")
        size = stored(folder)
        server.execute("XA COMMIT 'g'")
        wait_for(
            lambda: stored(folder) > size + 50_000_000 and pipeline.kill("receiver"),
            "a receiver with some of the transaction in its log",
            seconds=300,
        )
        scenario.drain(pipeline, restart=True)
        pipeline.stop()
    found = scenario.target("big").selectExpr(
        "count(*)", "count(DISTINCT id)", "sum(length(v))", "sum(crc32(v))"
    )
    expected = server.query("SELECT COUNT(*), COUNT(*), SUM(LENGTH(v)), SUM(CRC32(v)) FROM shop.big")
    assert tuple(found.collect()[0]) == tuple(int(number) for number in expected[0])
    assert 0 < memory["receiver"] <= MEMORY_MB and 0 < memory["driver"] <= XA_MEMORY_MB, memory
    assert 0 < memory["worker"] <= XA_MEMORY_MB, memory


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.binlog"))


@contextmanager
def largest(pipeline: RunningPipeline) -> Iterator[dict[str, int]]:
    """The most memory that receiver, driver and workers have been seen with."""
    most = {"receiver": 0, "driver": 0, "worker": 0}
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
