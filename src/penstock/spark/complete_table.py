"""A table at the target that says up to which time each target is complete: `completeness.table`.

A thread asks the source for its time and then for the end of its log, and waits until the pipeline has
applied the log up to there. `runtime/completeness.py` argues why each target has everything then that was
committed up to that time. The rows of all complete targets are written in one commit. Others keep what was
true of them before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.backoff import Backoff, Schedule
from penstock.failures.messages import one_sentence
from penstock.model.change import COMMIT_TIMESTAMP, DELETED, SEQUENCE
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Commit, TableSink
from penstock.sinks.refusals import refuse_foreign
from penstock.sinks.rows import Newer, Rows
from penstock.sources.base import Source
from penstock.state import StateStore

log = logging.getLogger(__name__)

RETRY = Schedule.steady(10.0)
"""Pause after a failure: whatever it was, the next write tells the same."""
LOOK_SECONDS = 0.2
"""How often the state is asked whether the log has been applied."""
_TIME = pa.timestamp("us", "UTC")
COLUMNS = pa.schema(
    [("table", pa.string()), ("complete_until", _TIME), ("offset", pa.int64()), ("epoch", pa.int64())]
)


class CompleteTable:
    """Writes the table in its own thread, so that no epoch waits for it."""

    def __init__(
        self,
        spark: SparkSession,
        sink: TableSink,
        state: StateStore,
        source: Source,
        place: LogPlace,
        table: TableId,
        *,
        seconds: float,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._state = state
        self._source = source
        self._place = place
        self._table = table
        self._seconds = seconds
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> None:
        """Raises `ConfigError` if another table has its name."""
        refuse_foreign(self._table, self._sink.open(self._table))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="complete", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        backoff = Backoff(RETRY)
        while not self._stopping.wait(self._seconds):
            try:
                self.write()
            except Exception as error:
                log.warning("the table %s cannot be written for now: %s", self._table, one_sentence(error))
                backoff.failed()
                backoff.wait(self._stopping)

    def write(self) -> None:
        """Writes what is complete now, once the pipeline has applied the log that the source has now."""
        at_us, position = self._source.clock_us(), self._source.end_position()
        relay = RelayLog.open(self._place)
        while True:
            relay.refresh()
            goal, reached = relay.offset_reaching(position), self._state.applied_offset()
            if goal is not None and reached is not None and reached >= goal:
                break
            if self._stopping.wait(LOOK_SECONDS):
                return
        complete = [table for table in self._state.tables().values() if _is_complete(table)]
        if not complete:
            return
        columns = tuple(Column(field.name, str(field.type)) for field in COLUMNS)
        self._sink.create(TableSchema(self._table, columns, ("table",)), COLUMNS)
        batch = _batch(complete, at_us, reached)

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch

        rows = Rows(lambda: self._spark.createDataFrame(pa.Table.from_batches([batch])), Newer(batches))
        self._sink.merge(self._table, rows, ("table",), Commit(self._state.uuid, at_us // 1000))


def _is_complete(table: TableState) -> bool:
    return table.streaming and table.complete and table.last_epoch > 0


def _batch(tables: list[TableState], at_us: int, offset: Offset) -> pa.RecordBatch:
    """The rows in the layout `latest`."""
    count = len(tables)
    values = {
        "table": pa.array([str(one.table) for one in tables], pa.string()),
        "complete_until": pa.array([at_us] * count, pa.int64()).cast(_TIME),
        "offset": pa.array([int(offset)] * count, pa.int64()),
        "epoch": pa.array([one.last_epoch for one in tables], pa.int64()),
        DELETED: pa.array([False] * count, pa.bool_()),
        SEQUENCE: pa.array([at_us] * count, pa.int64()),
        COMMIT_TIMESTAMP: pa.array([at_us] * count, pa.int64()).cast(_TIME),
    }
    return pa.RecordBatch.from_arrays(list(values.values()), list(values))
