"""Notices that somebody has restored an earlier version of a Delta table, so that rows of this pipeline are
gone.

Delta keeps transaction identifiers across a RESTORE: they say that a commit was made, and not that its rows
are still there. But the log says it: the entries after the newest commit of the pipeline are of others. If
one of them is a RESTORE, and a commit of the pipeline is among those that it undoes, only commits before
these count. What the pipeline commits afterwards comes after the RESTORE, so that this ends by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

ENTRIES_MAX = 200
"""Entries of the log that are looked through."""


class Restores:
    """Finds out whether tables were restored to earlier versions. Thread-safe: each table is looked at by one
    thread at a time."""

    def __init__(self, spark: SparkSession, pipeline: str) -> None:
        self._jvm: Any = spark._jvm
        self._ours = (f'"appId":"penstock-{pipeline}', f'"appId":"penstock+{pipeline}')
        self._whole: dict[str, int] = {}
        """For each table, by Delta's id, the version up to which all commits are known to be there."""

    def made(self, snapshot: Any, version: int) -> None:
        """Remembers that a commit made this version. It was based on a snapshot that was looked at."""
        if version == int(snapshot.version()) + 1:
            self._whole[_id(snapshot)] = version

    def undone_after(self, snapshot: Any) -> int | None:
        """The version to which the table was restored, if that has undone commits of the pipeline, and it has
        made none since. -1: a version that is not known. None: nothing is undone."""
        newest = int(snapshot.version())
        known = self._whole.get(_id(snapshot), -1)
        # After most small epochs, the version is known: then the log is not read.
        for version, entry, to in self._standing(snapshot, newest) if newest > known else ():
            if version <= known or self._is_ours(entry):
                break
            if to is not None and self._undoes_ours(snapshot, range(version - 1, to, -1)):
                return to
        self._whole[_id(snapshot)] = newest
        return None

    def newest_up_to(self, snapshot: Any, to: int, application: str) -> int | None:
        """The newest transaction version of an application in a version of the table and those before."""
        for _, entry, _ in self._standing(snapshot, to):
            for line in entry.splitlines() if self._is_ours(entry) else ():
                found = json.loads(line).get("txn")
                if found is not None and found["appId"] == application:
                    return int(found["version"])
        return None

    def _standing(self, snapshot: Any, newest: int) -> Iterator[tuple[int, str, int | None]]:
        """The entries that made a version of the table what it is, the newest first, as far as they can be
        read: those that a RESTORE has undone are left out. Each with the version that it has restored."""
        version = newest
        for _ in range(ENTRIES_MAX):
            entry = self._entry(snapshot, version) if version >= 0 else None
            if entry is None:
                return
            to = _restored(entry)
            yield version, entry, to
            version = version - 1 if to is None or to < 0 else to

    def _undoes_ours(self, snapshot: Any, versions: range) -> bool:
        for version in versions[:ENTRIES_MAX]:
            entry = self._entry(snapshot, version)
            if entry is None:
                return False  # it is too old to be in the log
            if self._is_ours(entry):
                return True
        return False

    def _is_ours(self, entry: str) -> bool:
        return any(one in entry for one in self._ours)

    def _entry(self, snapshot: Any, version: int) -> str | None:
        """An entry of the log, one action in each line. None: it cannot be read."""
        log = snapshot.deltaLog()
        try:
            path = self._jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020d}.json")
            return str(log.store().read(path, log.newDeltaHadoopConf()).mkString("\n"))
        except Py4JError:
            return None


def _id(snapshot: Any) -> str:
    return str(snapshot.metadata().id())


def _restored(entry: str) -> int | None:
    """The version to which this entry has restored the table; -1 if it names none but a time, and changes
    files. None: it is no RESTORE."""
    if '"RESTORE"' not in entry:
        return None
    for line in entry.splitlines():
        info = json.loads(line).get("commitInfo", {})
        if info.get("operation") != "RESTORE":
            continue
        version = str((info.get("operationParameters") or {}).get("version")).strip('"')
        if version.isdigit():
            return int(version)
        metrics = info.get("operationMetrics") or {}
        changed = [metrics.get(name, "1") for name in ("numRestoredFiles", "numRemovedFiles")]
        return None if changed == ["0", "0"] else -1
    return None
