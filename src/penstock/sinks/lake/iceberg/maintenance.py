"""Housekeeping of Iceberg tables beside the stream: what small commits leave behind is made cheap to read.

One thread does one table at a time. What it does changes no row, so a table can be left at any point of it,
and whatever fails is tried again after some more commits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.failures.messages import one_sentence
from penstock.model.schema import TableId
from penstock.sinks.base import Compacted
from penstock.sinks.lake.iceberg.expire import expire
from penstock.sinks.lake.iceberg.files import Classes, each
from penstock.sinks.lake.iceberg.fold_deletes import fold
from penstock.sinks.lake.iceberg.pack_files import Tier, pack
from penstock.sinks.lake.iceberg.registration import IcebergOptions
from penstock.sinks.lake.lookup import Unsearchable

log = logging.getLogger(__name__)

SHARE = 0.25
"""Of the time, that may be spent on one table."""
MIB = 1024**2
TIERS = (Tier(4 * MIB, 16 * MIB, 64), Tier(64 * MIB, 256 * MIB, 16))
UNLIMITED = 2**62
LEAVE_SECONDS_MAX = 10.0
LEAVE_COMMITS_MIN = 8
"""A table with fewer small commits is cheap to read as it is."""


@dataclass
class _Noted:
    commits: int = 0
    unfolded: int = 0
    """Small commits since the last fold."""
    rest_until: float = 0.0
    """Monotonic seconds."""
    waiting: bool = False


class Maintenance:
    """`load` gives a table as it is now; `exclusive` keeps Spark's own writes of a table out. Thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        classes: Classes,
        options: IcebergOptions,
        load: Callable[[TableId], Any],
        exclusive: Callable[[TableId], AbstractContextManager[None]],
    ) -> None:
        self._spark = spark
        self._classes = classes
        self._options = options
        self._load = load
        self._exclusive = exclusive
        self._noted: dict[TableId, _Noted] = {}
        self._queue: deque[TableId] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    def noted(self, table: TableId, *, small: bool) -> None:
        """There is one commit more."""
        with self._changed:
            found = self._noted.setdefault(table, _Noted())
            found.commits += 1
            found.unfolded += small
            often = found.commits >= (self._options.fold_commits if small else self._options.maintain_epochs)
            if not often or found.waiting or self._ended or time.monotonic() < found.rest_until:
                return
            found.waiting, found.commits, found.unfolded = True, 0, 0
            self._queue.append(table)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = InheritableThread(target=self._work, name="maintenance", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Returns once nothing is going on; nothing will be. Tables are left cheap to read, if that is soon
        done: the next run may be far away."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()  # a run that has to end cancels its jobs (`penstock.runtime.shutdown`)
        deadline = time.monotonic() + LEAVE_SECONDS_MAX
        for table, found in sorted(self._noted.items(), key=lambda one: one[1].unfolded, reverse=True):
            if found.unfolded < LEAVE_COMMITS_MIN or time.monotonic() > deadline:
                return
            try:
                self.fold(table)
            except Exception as error:  # the session may be what went wrong
                log.info("%s: its deletes are left as they are: %s", table, one_sentence(error))
                return

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._queue)
                if self._ended:
                    return
                table = self._queue.popleft()
            began = time.monotonic()
            try:
                self.tidy(table)
            except Exception as error:
                log.info("%s: housekeeping is put off: %s", table, one_sentence(error))
            with self._changed:
                found = self._noted[table]
                found.waiting = False
                took = time.monotonic() - began
                found.rest_until = time.monotonic() + took / SHARE

    def tidy(self, table: TableId) -> None:
        """Folds equality deletes, puts small files together, forgets old snapshots."""
        with self._exclusive(table):
            target = self._load(table)
            self._fold(table, target)
            self._pack(target)
        expire(self._classes, self._load(table), self._options)
        pa.default_memory_pool().release_unused()  # it would keep what the largest table took

    def fold(self, table: TableId) -> None:
        """Before Spark reads all of a table in order to write to it. For each data file it would make a set
        of all the keys that any later commit has deleted: minutes, where there are a hundred of either."""
        with self._exclusive(table):
            self._fold(table, self._load(table))

    def _fold(self, table: TableId, target: Any) -> None:
        try:
            fold(self._spark, self._classes, target)
        except Unsearchable as why:
            log.info("%s: the files with equality deletes are written again: %s", table, why)
            rewrite(self._spark, target, {"delete-file-threshold": "1"})

    def compact(self, table: TableId) -> Compacted:
        """As `tidy`, and every file that is small is written again."""
        before = len(file_sizes(self._load(table)))
        self.tidy(table)
        with self._exclusive(table):
            target = self._load(table)
            rewrite(self._spark, target, {"min-input-files": "2"})
        return Compacted(before, len(file_sizes(target)))

    def _pack(self, target: Any) -> None:
        sizes = file_sizes(target)
        for tier in TIERS:
            if sum(size < tier.below for size in sizes) < tier.count:
                continue
            try:
                done = pack(self._spark, self._classes, target, tier)
            except Unsearchable:
                done = False
            if not done:
                rewrite(self._spark, target, options(tier))
            return


def options(tier: Tier) -> dict[str, str]:
    """For Iceberg's own action."""
    return {
        "min-file-size-bytes": str(tier.below),
        "target-file-size-bytes": str(tier.aim),
        "max-file-size-bytes": str(UNLIMITED),
        "min-input-files": str(tier.count),
    }


def file_sizes(target: Any) -> list[int]:
    """Bytes of the data files."""
    return [one.file().fileSizeInBytes() for one in each(target.newScan().planFiles())]


def rewrite(spark: SparkSession, target: Any, options: dict[str, str]) -> None:
    """Iceberg's own rewriting of data files. It looks for its session where only threads that have had one
    set find it; else it fails for the want of a catalog that it has just named."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    action = action.rewriteDataFiles(target)
    for name, value in {**options, "remove-dangling-deletes": "true"}.items():
        action = action.option(name, value)
    action.execute()
    target.refresh()
