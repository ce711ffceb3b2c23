"""A query over `mysql_cdc` that is killed again and again, under writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.change_log import newest_rows

from penstock.testing import oracle, workload
from penstock.testing.scenario import wait_for
from penstock.testing.servers import MySqlServer
from penstock.testing.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TABLE = "orders"
PROGRAM = """
import sys
from pyspark.sql import SparkSession
folder, port, user, password, table = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "800m")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate()
)
changes = spark.readStream.format("mysql_cdc").options(
    host="127.0.0.1", port=port, user=user, password=password, table=table, state=folder + "/state",
    chunkRows="1000", maxBytesPerTrigger="200000",
).load()
writer = changes.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
writer.option("path", folder + "/out").start().awaitTermination()
"""


class Query:
    """The program, in a process of its own."""

    def __init__(self, folder: Path, server: MySqlServer, table: str) -> None:
        self.folder = folder
        account = (str(server.port), server.user, server.password)
        self._command = [sys.executable, "-c", PROGRAM, str(folder), *account, table]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self.folder / "errors", "ab") as errors:
            return subprocess.Popen(
                self._command, stdout=errors, stderr=errors, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip

    @property
    def batches(self) -> int:
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))

    def has_more_than(self, batches: int) -> bool:
        if self._process.poll() is not None:  # on a busy machine Spark gives its own processes up
            self._process = self._start()
        return self.batches > batches

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.mark.parametrize("seed", range(1, 6))
def test_each_change_is_there_once_and_the_newest_rows_are_the_tables(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance, server = random.Random(seed), mysql_factory()
    shop = workload.Shop.of_rows(8000)
    workload.load(server, shop)
    table = f"{shop.database}.{TABLE}"
    query = Query(tmp_path, server, table)
    try:
        with Writer(server, shop, seed=seed, rate=200, large_every_s=5, large_rows=2000):
            for _ in range(4):
                wait_for(partial(query.has_more_than, query.batches), "a batch", seconds=240)
                time.sleep(chance.uniform(0, 3))  # the random moment itself
                query.kill()
        wanted, columns = oracle.rows_of(server, table), oracle.columns_of(server, table)

        def equal() -> bool:
            query.has_more_than(0)
            found = newest_rows(spark.read.parquet(str(tmp_path / "out")), columns).collect()
            return oracle.canonical_rows((tuple(row) for row in found), columns) == wanted

        wait_for(equal, "the table's rows", seconds=240)
        log = spark.read.parquet(str(tmp_path / "out"))
        events = [row for row in log.select("_sequence", "_change_type").collect() if row[1] != "read"]
        doubled = [item for item, count in Counter(map(tuple, events)).items() if count > 1]
        assert not doubled, doubled[:5]
    finally:
        query.kill()
