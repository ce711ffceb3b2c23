"""Maintains Iceberg tables in the background, so that they stay cheap to read after many small commits.

One thread works on one table at a time. It changes no row. So it may stop at any point, and if something
fails, it tries again after some more commits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.failures.messages import one_sentence
from penstock.model.schema import TableId
from penstock.sinks.base import Compacted
from penstock.sinks.lake.iceberg.branch import OnBranch
from penstock.sinks.lake.iceberg.expire import expire
from penstock.sinks.lake.iceberg.files import Classes, closeable_items
from penstock.sinks.lake.iceberg.fold_deletes import fold
from penstock.sinks.lake.iceberg.live import LiveFiles
from penstock.sinks.lake.iceberg.manifests import data_files
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.iceberg.orphans import remove_orphans
from penstock.sinks.lake.iceberg.pack_files import Tier, by_partition, pack
from penstock.sinks.lake.iceberg.stream import Stream
from penstock.sinks.lake.index.tables import Indexes
from penstock.sinks.lake.lookup import Unsearchable

log = logging.getLogger(__name__)

SHARE = 0.25
"""The share of time that may be spent on one table."""
MIB = 1024**2
TIERS = (Tier(4 * MIB, 16 * MIB, 64), Tier(64 * MIB, 256 * MIB, 16))
WORN_TOTAL, WORN_SHARE = 0.1, 0.2
"""If at least `WORN_TOTAL` of a table's rows are deleted, its data files are rewritten in which at least
`WORN_SHARE` of the rows are deleted. Otherwise, files that are not small would stay forever, and commits
would write their growing vectors again and again. For each deleted row, up to five rows are copied, which
takes a hundredth of the CPU time of a change in a small commit."""
UNLIMITED = 2**62
WORN = Tier(UNLIMITED, 256 * MIB, 1, WORN_SHARE)
ALL_SMALL = Tier(64 * MIB, 256 * MIB, 2)


@dataclass
class _Counts:
    commits: int = 0
    rest_until: float = 0.0
    """Time of the monotonic clock, in seconds, before which the table is not maintained again."""
    waiting: bool = False


class Maintenance:
    """Maintains tables in a thread of its own. `load`, `exclusive`: see `LakeFormat`. Thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        classes: Classes,
        options: IcebergOptions,
        indexes: Indexes[LiveFiles],
        load: Callable[[TableId], Any],
        exclusive: Callable[[TableId], AbstractContextManager[None]],
    ) -> None:
        self._spark = spark
        self._classes = classes
        self._options = options
        self._indexes = indexes
        self.load = load
        self._exclusive = exclusive
        self._counts: dict[TableId, _Counts] = {}
        self._queue: deque[TableId] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    def count_commit(self, table: TableId, *, small: bool) -> None:
        """Counts a commit. After some commits, the table is maintained."""
        with self._changed:
            found = self._counts.setdefault(table, _Counts())
            found.commits += 1
            often = found.commits >= (self._options.fold_commits if small else self._options.maintain_epochs)
            if not often or found.waiting or self._ended or time.monotonic() < found.rest_until:
                return
            found.waiting, found.commits = True, 0
            self._queue.append(table)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = InheritableThread(target=self._work, name="maintenance", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()  # a run that must end cancels its Spark jobs (`penstock.runtime.shutdown`)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._queue)
                if self._ended:
                    return
                table = self._queue.popleft()
            began = time.monotonic()
            try:
                self.maintain(table)
            except Exception as error:
                log.info("%s: maintenance failed and is tried again later: %s", table, one_sentence(error))
            with self._changed:
                found = self._counts[table]
                found.waiting = False
                took = time.monotonic() - began
                found.rest_until = time.monotonic() + took / SHARE

    def maintain(self, table: TableId) -> None:
        """Converts equality deletes, merges small files, and expires old snapshots."""
        with self._exclusive(table):
            target = self.load(table)
            self._fold(table, target)
            self._pack(table, target)
        expire(self._classes, self.load(table), self._options)
        pa.default_memory_pool().release_unused()  # else the pool keeps the memory of the largest table

    def fold(self, table: TableId) -> None:
        """Converts equality deletes before Spark reads the whole table for a write. Spark would build, for
        each data file, a set of all keys that later commits have deleted. With a hundred of both, that takes
        minutes."""
        with self._exclusive(table):
            self._fold(table, self.load(table))

    def _fold(self, table: TableId, target: Any) -> None:
        try:
            fold(self._spark, self._classes, target)
        except Unsearchable as why:
            log.info("%s: the data files with equality deletes are rewritten: %s", table, why)
            rewrite(self._spark, target, {"delete-file-threshold": "1"})

    def compact(self, table: TableId, name: str) -> Compacted:
        """Maintains the table, rewrites all small files, and removes files that no snapshot names. `name`:
        the table's in Spark SQL."""
        before = len(file_sizes(self.load(table)))
        self.maintain(table)
        with self._exclusive(table):
            with suppress(Unsearchable):
                while pack(self._spark, self._classes, self.load(table), ALL_SMALL, self.stream(table)):
                    pass
            target = self.load(table)
            try:
                rewrite(self._spark, target, {"min-input-files": "2"})
            except Py4JJavaError as error:  # of a pipeline that goes on: what could be merged is
                log.info("%s: some files are left as they are: %s", table, one_sentence(error))
                target = self.load(table)
        orphans = remove_orphans(self._spark, self._classes, name, target)
        return Compacted(before, len(file_sizes(target)), orphans)

    def stream(self, table: TableId) -> Stream:
        """A stream of the small commits that may be made to the table during maintenance."""
        return Stream(lambda: self.load(table), self._classes, self._indexes.known(table))

    def _pack(self, table: TableId, target: Any) -> None:
        sizes = sizes_by_partition(self._classes, target)
        for tier in TIERS:
            if any(sum(size < tier.below for size in some) >= tier.count for some in sizes):
                if not self._packed(table, target, tier):
                    rewrite(self._spark, target, options(tier))
                target = self.load(table)
                break
        if deleted_share(target) >= WORN_TOTAL:
            self._packed(table, target, WORN)

    def _packed(self, table: TableId, target: Any, tier: Tier) -> bool:
        try:
            return pack(self._spark, self._classes, target, tier, self.stream(table))
        except Unsearchable:
            return False


def deleted_share(target: Any) -> float:
    """The share of the rows in the data files that is deleted."""
    snapshot = target.currentSnapshot()
    summary = {} if snapshot is None else snapshot.summary()
    rows, gone = (int(summary.get(f"total-{name}") or 0) for name in ("records", "position-deletes"))
    return gone / rows if rows else 0.0


def options(tier: Tier) -> dict[str, str]:
    """Options of Iceberg's own action that merges files."""
    return {
        "min-file-size-bytes": str(tier.below),
        "target-file-size-bytes": str(tier.aim),
        "max-file-size-bytes": str(UNLIMITED),
        "min-input-files": str(tier.count),
    }


def file_sizes(target: Any) -> list[int]:
    """Sizes of the data files in bytes."""
    return [one.file().fileSizeInBytes() for one in closeable_items(target.newScan().planFiles())]


def sizes_by_partition(classes: Classes, target: Any) -> list[list[int]]:
    """Sizes of the data files of each partition, in bytes."""
    snapshot = target.currentSnapshot()
    if target.spec().isUnpartitioned() or snapshot is None:
        return [file_sizes(target)]
    files = by_partition(data_files(classes, target, snapshot)).values()
    return [[file.size for file in some] for some in files]


def rewrite(spark: SparkSession, target: Any, options: dict[str, str]) -> None:
    """Rewrites data files with Iceberg's own action. The action needs an active session in the calling
    thread: without it, it does not find the catalog."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    action = action.rewriteDataFiles(target)
    if isinstance(target, OnBranch):
        target.create_branch()
        action = action.toBranch(target.branch)
    for name, value in {**options, "remove-dangling-deletes": "true"}.items():
        action = action.option(name, value)
    action.execute()
    target.refresh()
