"""How many rows of the log are written to targets.

They are counted where they are decoded, by batch, so a row costs nothing. Spark may run a task twice, and a
sink may ask for its rows twice. Then the same number comes again, and takes the place of the first one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from penstock.epochs import tasks
from penstock.model.schema import TableId

Counts = dict[tuple[Any, ...], int]


class _Newest(AccumulatorParam[Counts]):
    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        value1.update(value2)
        return value1


@dataclass(frozen=True)
class CountedDecode:
    """`tasks.decode`, whose rows are counted. Pickles."""

    number: int
    found: Accumulator[Counts]
    is_whole: bool = False
    """Whether a task decodes all events of the step."""

    def whole(self) -> CountedDecode:
        return replace(self, is_whole=True)

    def __call__(self, task: tasks.DecodeTask) -> tasks.Batches:
        share = () if self.is_whole else (int(task.splits[0].start), task.bucket)
        rows = 0
        try:
            for batch in tasks.decode(task):
                rows += batch.num_rows
                yield batch
        finally:
            self.found.add({(self.number, *share): rows})


class RowCounts:
    """The counts of tables whose events are written. Thread-safe, for one step of a table at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._found = spark.sparkContext.accumulator({}, _Newest())
        self._numbers = itertools.count()
        self._newest: dict[TableId, int] = {}

    def begin(self, table: TableId) -> CountedDecode:
        """What decodes the events of the table's next step."""
        self._newest[table] = next(self._numbers)
        return CountedDecode(self._newest[table], self._found)

    def take(self, table: TableId) -> int:
        """The rows of the newest step of the table. Forgets them, and those of its earlier attempts."""
        number = self._newest.pop(table, None)
        counts = self._found.value
        own = {key: rows for key, rows in list(counts.items()) if key[0] == number}
        oldest = min(list(self._newest.values()), default=number)
        for key in list(counts):
            if key in own or oldest is None or key[0] < oldest:
                counts.pop(key, None)
        return own.get((number,), sum(own.values()))
