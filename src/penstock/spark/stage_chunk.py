"""Chunks are read by Spark jobs, each with one task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.failures.crossing import crossing
from penstock.model.chunk import StagedChunk
from penstock.snapshot.chunk_jobs import StageTask

TAG = "penstock-chunks"
"""Tag of the Spark jobs that read chunks, by which they are cancelled."""


class SparkJobs:
    def __init__(self, spark: SparkSession, *, opens_views: bool = True) -> None:
        self.opens_views = opens_views
        self._context = spark.sparkContext

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        return InheritableThread(target=run, name=name, daemon=True)

    def begin(self) -> None:
        self._context.setLocalProperty("spark.scheduler.pool", "snapshot")
        self._context.addJobTag(TAG)

    def stage(self, task: StageTask) -> StagedChunk:
        jobs = self._context.parallelize([task], 1)
        [staged] = jobs.mapPartitions(stager(str(task.chunk.table))).collect()
        return staged

    def cancel(self) -> None:
        self._context.cancelJobsWithTag(TAG)


def stager(table: str) -> Callable[[Iterable[StageTask]], Iterator[StagedChunk]]:
    """The function that Spark tasks of `table` run. Must be called in the driver."""
    crosses = crossing(table)

    def body(tasks: Iterable[StageTask]) -> Iterator[StagedChunk]:
        with crosses.guard():
            for task in tasks:
                yield task.run()

    return body
