"""Writes the history of table definitions to a table beside the targets. The table is append-only.

Each entry is written exactly once, and the target alone guarantees it. Entries are added in the order of
their ids. The commit that adds them carries the last id instead of an epoch. So the entries still to be
added are those with greater ids than the target's last commit. This also holds after a crash, or if the
table was rolled back or dropped.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.backoff import Backoff, Schedule
from penstock.errors import PenstockError
from penstock.failures.messages import one_sentence
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, SEQUENCE
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import Change
from penstock.sinks.base import Commit, Ours, Sink, TableSink, change_sink
from penstock.sinks.refusals import refuse_foreign
from penstock.sinks.rows import Rows
from penstock.state import StateStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Time between two checks for new entries, so that many changes in a row make one commit."""
RETRY = Schedule.steady(60.0)
"""Pause after a failed write."""

_TIME = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("table", pa.string()),
        ("version", pa.int32()),
        ("offset", pa.int64()),
        ("committed", _TIME),
        ("recorded", _TIME),
        ("what", pa.string()),
        ("decision", pa.string()),
        ("statement", pa.string()),
    ]
)
"""The columns of the table."""


class HistoryTable:
    """Adds the entries of the state's history to `table`, in its own thread, so that no epoch waits
    for it."""

    def __init__(self, spark: SparkSession, sink: Sink, state: StateStore, table: TableId) -> None:
        self._spark = spark
        self._sink = sink
        self._state = state
        self._table = table
        self._written: int | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> None:
        """Raises `ConfigError` if another table has the name of the history table."""
        refuse_foreign(self._table, self._sink.open(self._table))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        """Waits until all earlier entries are written, or writing fails, or `seconds` have passed. The next
        run writes the rest."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def write(self) -> None:
        """Adds the new entries."""
        if self._written is not None and self._written >= self._state.last_change():
            return
        target = self._sink.open(self._table)
        last = target.last_commit if isinstance(target, Ours) else None
        self._written = max(last.epoch if last is not None else 0, self._state.began_after)
        entries = self._state.history_after(self._written)
        if not entries:
            return
        if (missing := entries[0][0] - self._written - 1) > 0:
            log.warning("the history table %s lacks %d old entries, which the state has deleted",
                        self._table, missing)  # fmt: skip
        columns = tuple(Column(field.name, str(field.type)) for field in COLUMNS)
        self._sink.create(TableSchema(self._table, columns, ("id",)), COLUMNS)
        newest = entries[-1][0]
        commit = Commit(self._state.uuid, newest)
        if isinstance(self._sink, TableSink):
            self._sink.append(self._table, self._rows(entries, changelog=False), commit)
        else:
            change_sink(self._sink).write_changes(self._table, self._rows(entries, changelog=True), commit)
        self._written = newest

    def _rows(self, entries: list[tuple[int, Change]], *, changelog: bool) -> Rows:
        return Rows(self._spark.createDataFrame(_table(entries, changelog=changelog)))

    def _run(self) -> None:
        backoff = Backoff(RETRY)
        while not self._stopping.wait(LOOK_SECONDS):
            if backoff.ready and not self._try():
                backoff.failed()
        self._try()

    def _try(self) -> bool:
        """Adds the new entries; False: that failed and is retried. The pipeline continues in any case."""
        try:
            self.write()
            return True
        except Exception as error:
            self._written = None
            if self._stopping.is_set():  # stopping ends Spark's jobs, whatever they do
                log.warning("the newest entries of the history table %s are left to the next run: %s",
                            self._table, one_sentence(error))  # fmt: skip
                return False
            trace = None if isinstance(error, PenstockError) else error  # for the file of stack traces
            log.warning(
                "the history table %s cannot be written for now: %s",
                self._table, one_sentence(error), exc_info=trace,
            )  # fmt: skip
            return False


def _table(entries: list[tuple[int, Change]], *, changelog: bool) -> pa.Table:
    """The entries as rows, in the layout that the sink takes."""
    changes = [change for _, change in entries]
    ids = pa.array([number for number, _ in entries], pa.int64())
    committed = pa.array([change.commit_us for change in changes], pa.int64()).cast(_TIME)
    values: dict[str, Any] = {
        "id": ids,
        "table": pa.array([str(change.table) for change in changes], pa.string()),
        "version": pa.array([change.version for change in changes], pa.int32()),
        "offset": pa.array([int(change.offset) for change in changes], pa.int64()),
        "committed": committed,
        "recorded": pa.array([change.noted_us for change in changes], pa.int64()).cast(_TIME),
        "what": pa.array([change.what for change in changes], pa.string()),
        "decision": pa.array([change.decision for change in changes], pa.string()),
        "statement": pa.array([change.statement for change in changes], pa.string()),
        SEQUENCE: ids,
    }
    if changelog:
        values[CHANGE_TYPE] = pa.array(["insert"] * len(changes), pa.string())
        values[COMMIT_TIMESTAMP] = committed
    else:
        values[DELETED] = pa.array([False] * len(changes), pa.bool_())
    return pa.table(values)
