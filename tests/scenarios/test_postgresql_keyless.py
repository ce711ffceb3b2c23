"""Tables without a key into a change log, while their rows move."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.postgresql import LOGICAL, PgScenario, connected

from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 8000
IMAGES = ("read", "insert", "update_postimage")


def _write(server: PostgreSqlServer, ended: threading.Event) -> None:
    """Changes the first half of the rows, so that they move."""
    chance = random.Random(5)
    with connected(server) as sql:
        sql.execute("SET search_path = keyless")
        while not ended.wait(0.05):
            first = chance.randrange(ROWS // 2 - 50)
            for table in ("bag", "moved"):
                sql.execute(
                    f"UPDATE {table} SET v = v + 1, note = repeat('y', 150) "
                    f"WHERE id BETWEEN {first} AND {first + 49}".encode()
                )
            sql.execute("VACUUM bag")  # so that places are used again


@pytest.mark.slow
def test_a_change_log_lacks_no_row_of_a_table_without_a_key(
    spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with PostgreSqlServer(settings=LOGICAL) as server:
        scenario = PgScenario(
            server, "keyless", tmp_path, spark, lake_root,
            sink={"type": "parquet", "path": str(log), "namespace": "keyless"},
            snapshot={"chunk_rows": 400, "rows_per_second": 1000},
        )  # fmt: skip
        for table in ("bag", "moved"):
            scenario.execute(
                f"CREATE TABLE {table} (id int, v int, note text)",
                f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                f"INSERT INTO {table} SELECT i, 0, repeat('x', 100) FROM generate_series(1, {ROWS}) i",
                f"ANALYZE {table}",
            )
        ended = threading.Event()
        writer = threading.Thread(target=_write, args=(server, ended))
        writer.start()
        try:
            with scenario.running() as pipeline:
                # `bag` is read first.
                several = int(1.4 * ROWS / 400)
                pipeline.wait_until(lambda s: s["snapshot"]["chunks_read"] > several, "chunks", seconds=300)
                scenario.execute("VACUUM FULL moved")
                pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=300)
                ended.set()
                writer.join()
                scenario.drain(pipeline)
                assert pipeline.latest["snapshot"]["chunks"] > 2 * ROWS // 400 / 2
        finally:
            ended.set()
            writer.join()
        for table in ("bag", "moved"):
            images = spark.read.parquet(str(log / "keyless" / table))
            found = images.where(images["_change_type"].isin(*IMAGES)).select("id", "v", "_change_type")
            rows = [tuple(row) for row in found.toLocalIterator()]
            query = f"SELECT id, v FROM {table}"
            there = set(scenario.sql.execute(query.encode()).fetchall())
            lacking = there - {(id, v) for id, v, _ in rows}
            assert len(there) == ROWS and not lacking, (table, sorted(lacking)[:5])
            again = images.where(images["_change_type"] == "truncate").count()
            assert bool(again) == (table == "moved"), "VACUUM FULL makes it read again"
            if table == "bag":
                once = Counter(id for id, _, kind in rows if id > ROWS // 2 and kind == "read")
                assert len(once) == ROWS // 2 and set(once.values()) == {1}
        scenario.sql.close()
