"""The stream whose offsets are epoch numbers.

Spark polls it in a Python process of its own, which reads the state store and nothing else; so this module
imports little and opens its connection late (instances are pickled).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType


class EpochSource(DataSource):
    """Stream source `penstock_epochs`: its offset is `{"epoch": newest durable plan}`; it has no rows."""

    @classmethod
    def name(cls) -> str:
        return "penstock_epochs"

    def schema(self) -> str:
        return "epoch BIGINT"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _EpochReader(self.options["state"])


class _EpochReader(DataSourceStreamReader):
    def __init__(self, state: str) -> None:
        self._state = state
        self._db: sqlite3.Connection | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"epoch": 0}

    def latestOffset(self) -> dict[str, int]:
        if self._db is None:
            path = Path(self._state) / "state.sqlite"
            self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False, timeout=30)
        newest = self._db.execute("SELECT coalesce(max(epoch), 0) FROM epochs").fetchone()[0]
        return {"epoch": int(newest)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["epoch"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter(())

    def commit(self, end: dict[str, int]) -> None:
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {"_state": self._state, "_db": None}


def start_query(spark: SparkSession, run_pending: Callable[..., None], directory: Path) -> StreamingQuery:
    """Starts the stream over the state in `directory`; its checkpoint is `directory/spark`."""
    spark.dataSource.register(EpochSource)
    stream = spark.readStream.format(EpochSource.name()).option("state", str(directory)).load()
    writer = stream.writeStream.foreachBatch(lambda frame, number: run_pending())
    return writer.option("checkpointLocation", str(directory / "spark")).queryName("penstock").start()
