"""What the seeds of one worker share: a source, and a Spark session that reads targets."""

from __future__ import annotations

import contextlib
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.mysql import DURABLE

from penstock.config import SparkConfig
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.testing.scenario import SHORT_LIVED
from penstock.testing.servers import MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Ground:
    """Context manager. `folder` holds a folder for each seed, removed after it."""

    def __init__(self, folder: Path, spark: SparkSession | None = None) -> None:
        self.folder = folder
        self._server: MySqlServer | None = None
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._spark: Future[SparkSession] | None = None
        self._owns_spark = spark is None
        if spark is not None:
            self._spark = Future()
            self._spark.set_result(spark)

    def __enter__(self) -> Ground:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._spark is None:
            self._spark = self._aside.submit(self._start_spark)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._server is not None:
            self._server.close()
        if self._owns_spark and self._spark is not None:
            with contextlib.suppress(Exception):
                self._spark.result().stop()
        self._aside.shutdown()

    @property
    def server(self) -> MySqlServer:
        """Running; another one if the last one does not answer any more."""
        if self._server is not None and not self._server.running:
            self.renew()
        if self._server is None:
            self._server = MySqlServer(DURABLE)
        return self._server

    def renew(self) -> None:
        """The next seed gets another server."""
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None
        return self._spark.result()

    def _start_spark(self) -> SparkSession:
        from penstock.spark.session import session_options, start

        state = self.folder / "reader"
        shutil.rmtree(state, ignore_errors=True)
        options = {**SHORT_LIVED, "spark.log.level": "ERROR"}
        config = SparkConfig(master="local[1]", app_name="chaos", driver_memory="700m", conf=options)
        sinks = [
            IcebergOptions(path=state / "none"),
            DeltaOptions(type="delta", path=state / "none"),
        ]
        return start(session_options(config, sinks, state), config.master, state)
