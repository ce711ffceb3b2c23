"""A pipeline that reads tables from standbys while they die and become primaries."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios.postgresql import LOGICAL, PgScenario, connected

from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.servers.postgresql_standby import PostgreSqlStandby

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 30_000


@pytest.fixture
def servers() -> Iterator[tuple[PostgreSqlServer, PostgreSqlStandby, PostgreSqlStandby]]:
    with (
        PostgreSqlServer(settings={**LOGICAL, "wal_keep_size": "1GB"}) as primary,
        PostgreSqlStandby(primary) as first,
        PostgreSqlStandby(primary) as second,
    ):
        yield primary, first, second


def _write(server: PostgreSqlServer, ended: threading.Event) -> None:
    chance = random.Random(3)
    with connected(server) as sql:
        sql.execute("SET search_path = stood")
        while not ended.wait(0.005):
            row = chance.randrange(ROWS)
            with sql.transaction(force_rollback=chance.random() < 0.1):
                sql.execute("UPDATE orders SET v = v + 1 WHERE id BETWEEN %s AND %s", (row, row + 20))
                sql.execute("DELETE FROM orders WHERE id = %s", (row + 30,))
                sql.execute("INSERT INTO orders VALUES (%s, 'new', 0) ON CONFLICT DO NOTHING", (row + ROWS,))


def _scans(server: PostgreSqlServer) -> int:
    with connected(server) as sql:
        query = "SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'orders'"
        [(scans,)] = sql.execute(query.encode()).fetchall()
        return int(scans or 0)


@pytest.mark.slow
def test_tables_are_read_from_standbys_that_are_killed_and_promoted(
    servers: tuple[PostgreSqlServer, PostgreSqlStandby, PostgreSqlStandby],
    spark: SparkSession,
    lake_root: Path,
    tmp_path: Path,
) -> None:
    primary, first, second = servers
    hosts = [f"{one.host}:{one.port}" for one in (first, second)]
    limits: dict[str, Any] = {"chunk_rows": 300, "parallel": 3, "rows_per_second": 2000, "hosts": hosts}
    stood = PgScenario(primary, "stood", tmp_path, spark, lake_root, snapshot=limits)
    stood.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text, v int)",
        f"INSERT INTO orders SELECT i, 'row ' || i, i FROM generate_series(1, {ROWS}) i",
        "ANALYZE orders",
    )
    ended = threading.Event()
    writer = threading.Thread(target=_write, args=(primary, ended))
    writer.start()
    try:
        with stood.running() as pipeline:

            def read(chunks: int) -> None:
                what = f"{chunks} chunks"
                pipeline.wait_until(lambda s: s["snapshot"]["chunks_read"] >= chunks, what, seconds=300)

            read(10)
            assert _scans(first) > 0 and _scans(second) > 0
            first.kill9()
            read(20)
            with connected(second) as sql:
                assert sql.execute("SELECT pg_promote()").fetchone() == (True,)
                sql.execute("UPDATE stood.orders SET note = 'of the other primary'")
            waits = pipeline.wait_until(
                lambda s: s["snapshot"]["paused_by"] == "hosts", "the wait for a host", seconds=120
            )
            assert "no standby" in waits["snapshot"]["throttled"], waits["snapshot"]
            assert not waits["snapshot"]["done"]
            first.start()
            pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=300)
            ended.set()
            writer.join()
            stood.drain(pipeline)
            stood.assert_equal("orders")
            assert _scans(first) > 0
    finally:
        ended.set()
        writer.join()
        stood.sql.close()
