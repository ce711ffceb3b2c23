"""Reads the checksum files of Delta tables, which is fast. Without them, Delta rebuilds the table's state
from its log by a Spark job for each commit: 0.8 s, or 6 s in a JVM that has just started.

A checksum file belongs to one log entry, and describes exactly that version. Its lists of transactions and
files are complete, or missing (PROTOCOL.md, "Version Checksum File"). If one is missing, Delta is asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

FILES_MAX = 500
"""Tables with more data files have no list of them in their checksums, because each commit rewrites it."""

_RETENTION = "delta.setTransactionRetentionDuration"


class Checksums:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm

    def transaction(self, snapshot: Any, application: str) -> int | None:
        """The newest transaction version of an application."""
        if snapshot.metadata().configuration().get(_RETENTION).isEmpty():
            known = self._entries(snapshot, "setTransactions")
            if known is not None:  # one for each source table of the target
                return max(
                    (int(one["version"]) for one in known if one["appId"] == application), default=None
                )
        version = snapshot.transactions().get(application)
        return int(version.get()) if version.isDefined() else None

    def files(self, snapshot: Any) -> Sequence[dict[str, Any]]:
        """The log's entries for all data files, read from the JVM in one call."""
        known = self._entries(snapshot, "allFiles")
        if known is not None:
            return known
        rows = self._json(snapshot.allFiles().toJSON().collectAsList())
        return [json.loads(row) for row in rows]

    def is_empty(self, snapshot: Any) -> bool:
        """Whether the table has no data files."""
        checksum = snapshot.checksumOpt()
        counted = checksum.get() if checksum.isDefined() else None
        return bool((snapshot.numOfFiles() if counted is None else counted.numFiles()) == 0)

    def _entries(self, snapshot: Any, name: str) -> list[dict[str, Any]] | None:
        checksum = snapshot.checksumOpt()
        entries = getattr(checksum.get(), name)() if checksum.isDefined() else checksum
        return self._json(entries.get()) if entries.isDefined() else None

    def _json(self, values: Any) -> Any:
        return json.loads(
            self._jvm.org.apache.spark.sql.delta.util.JsonUtils.mapper().writeValueAsString(values)
        )
