"""A table at the target that says up to which time each target is complete: `completeness.table`.

A thread asks the source for its time and then for the end of its log, and waits until the pipeline has
applied the log up to there. `runtime/completeness.py` argues why each target then has everything that was
committed up to that time. The rows of all complete targets are written in one commit. The rows of other
targets stay as they were.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.backoff import Backoff, Schedule
from penstock.errors import PenstockError
from penstock.failures.messages import one_sentence
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.offset import Offset, SourcePosition
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
"""Pause after a failed write. The next one contains everything that this one would have written."""
LOOK_SECONDS = 0.2
"""How often the state is asked whether the log has been applied."""
Moment = tuple[int, SourcePosition]
"""The source's time in microseconds, and the end that its log had after that."""
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
        self._written_us = 0  # up to this time the table says what is complete

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
        first: Moment | None = None
        with contextlib.suppress(PenstockError):  # the source does not answer
            first = self._now()
        while not self._stopping.wait(self._seconds):
            try:
                self.write()
            except Exception as error:
                self._warn(error)
                backoff.failed()
                backoff.wait(self._stopping)
        try:
            self._write_at_end(first)
        except Exception as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        trace = None if isinstance(error, PenstockError) else error  # for the file of stack traces
        log.warning(
            "the table %s cannot be written for now: %s", self._table, one_sentence(error), exc_info=trace
        )

    def _now(self) -> Moment:
        return self._source.clock_us(), self._source.end_position()

    def write(self) -> None:
        """Writes what is complete now, once the pipeline has applied the log that the source has now."""
        moment, relay = self._now(), RelayLog.open(self._place)
        while not self._write_if_applied(moment, relay):
            if self._stopping.wait(LOOK_SECONDS):
                return

    def _write_at_end(self, first: Moment | None) -> None:
        """Writes once more before the run ends, since a run with `--once` may be shorter than the interval.
        If the pipeline has not applied the present end of the source's log, the time that is written is
        `first`, when the run began."""
        relay = RelayLog.open(self._place)
        if not self._write_if_applied(self._now(), relay) and first is not None:
            self._write_if_applied(first, relay)

    def _write_if_applied(self, moment: Moment, relay: RelayLog) -> bool:
        """Writes the tables that have everything up to the moment. Returns False if the pipeline has not
        applied the log up to there."""
        at_us, position = moment
        relay.refresh()
        goal, reached = relay.offset_reaching(position), self._state.applied_offset()
        if goal is None or reached is None or reached < goal:
            return False
        complete = [table for table in self._state.tables().values() if _is_complete(table)]
        if complete and at_us > self._written_us:
            self._put(_batch(complete, at_us, reached), at_us)
        return True

    def _put(self, batch: pa.RecordBatch, at_us: int) -> None:
        columns = tuple(Column(field.name, str(field.type)) for field in COLUMNS)
        self._sink.create(TableSchema(self._table, columns, ("table",)), COLUMNS)

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch

        rows = Rows(lambda: self._spark.createDataFrame(pa.Table.from_batches([batch])), Newer(batches))
        self._sink.merge(self._table, rows, ("table",), Commit(self._state.uuid, at_us // 1000))
        self._written_us = at_us


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
    }
    return pa.RecordBatch.from_arrays(list(values.values()), list(values))
