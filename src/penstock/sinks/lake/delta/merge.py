"""Merges epochs without a MERGE. The tasks that decode the rows write them as data files, without a shuffle.
Deletion vectors mark the target's rows with the same keys as deleted. One commit adds both.

As in Iceberg (`lake/iceberg/merge.py` says why this is faster), new rows replace those with the same keys.
That is right if all of these are older (`Newer`). The commit starts from the snapshot that was searched for
keys and in which this commit was found to be missing. Delta refuses it if anybody has added rows or removed
files since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, Merged, MergeWriter, WrittenFile, merged
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.delta.commits import Commits
from penstock.sinks.lake.delta.files import (
    added,
    clustering,
    file_writer,
    key_writer,
    statistics,
    takes_vectors,
)
from penstock.sinks.lake.delta.live import File, Live, LiveFiles, table_keys
from penstock.sinks.lake.delta.mark_rows import Changes, mark_rows
from penstock.sinks.lake.index.replaced import replaced
from penstock.sinks.lake.index.tables import Indexes, TableKeys
from penstock.sinks.lake.lookup import Unsearchable
from penstock.sinks.rows import Newer, Rows


class FileMerges:
    def __init__(
        self, spark: SparkSession, access: Access, commits: Commits, indexes: Indexes[LiveFiles]
    ) -> None:
        self._spark = spark
        self._access = access
        self._commits = commits
        self._indexes = indexes

    def write(self, table: TableId, snapshot: Any, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Replaces the target's rows that have the same keys as these, in the layout `latest`. False, with
        nothing done: the table or these rows need a MERGE."""
        if not isinstance(rows.kind, Newer) or not takes_vectors(snapshot):
            return False
        writer = file_writer(self._spark, self._access, snapshot)
        if writer is None:
            return False
        keys = key_writer(writer, key if rows.shard is None else (*key, rows.shard.column))
        if keys is None:
            return False
        task = MergeWriter(writer, keys)
        if rows.driver_side is not None:
            found = task.files(rows.driver_side())
        elif writer.folder.files.travels:
            found = merged(rows.through(task, MERGED), task)
        else:
            return False
        if found is None:
            return False
        try:
            done = self._replace(table, snapshot, task, found, commit)
        finally:
            keys.remove(found.keys)
        if not done:
            writer.remove(found.rows)
        return done

    def _replace(
        self, table: TableId, snapshot: Any, task: MergeWriter, found: Merged, commit: Commit
    ) -> bool:
        index = table_keys(self._indexes, table, task.keys)
        with index.changing:
            try:
                live = index.live.of(snapshot, task.rows.folder)
                changes = self._changes(index, live, task, found) if found.keys else Changes()
            except Unsearchable:
                return False
            clustered = clustering(self._spark, snapshot)
            new = [added(file, task.rows, clustered) for file in found.rows]
            version = self._commits.write(snapshot, commit, [*changes.actions, *new], reads=True)
            if version == live.version + 1:  # nothing else was committed in between
                stored = [File.of(action["add"], task.rows.folder) for action in new]
                index.live.committed(live.after(version, [*changes.changed, *stored], changes.removed))
        return True

    def _changes(self, index: TableKeys[LiveFiles], live: Live, task: MergeWriter, found: Merged) -> Changes:
        """The changes of files that delete the rows with these keys."""
        fields, folder = task.keys.fields, task.keys.folder
        span = KeySpan.of(found.keys, fields)
        searched = [file.searched() for file in live.files.values() if span.may_be_in(file.stats)]
        return mark_rows(folder, live.files, replaced(self._spark, index, live, searched, found.keys))


@dataclass(frozen=True)
class KeySpan:
    """The least and the greatest values of a key's columns, in the form of Delta's statistics. Texts are
    ordered by their code points, which is the same as the order of their bytes."""

    least: dict[str, Any]
    greatest: dict[str, Any]

    @classmethod
    def of(cls, files: Sequence[WrittenFile], fields: pa.Schema) -> KeySpan:
        # Texts of times depend on the time zone of who wrote them.
        times = [field.name for field in fields if pa.types.is_timestamp(field.type)]
        found = [statistics(file, fields, text_max=1 << 20, without=times) for file in files]
        whole = [name for name in found[0]["minValues"] if all(name in one["minValues"] for one in found)]
        return cls(
            {name: min(one["minValues"][name] for one in found) for name in whole},
            {name: max(one["maxValues"][name] for one in found) for name in whole},
        )

    def may_be_in(self, stats: dict[str, Any]) -> bool:
        """Whether a data file with these statistics may contain a row with one of the keys."""
        lower, upper = stats.get("minValues", {}), stats.get("maxValues", {})
        for name, least in self.least.items():
            low, high = lower.get(name), upper.get(name)
            if type(low) is not type(least) or type(high) is not type(least):
                continue
            if high < least or low > self.greatest[name]:
                return False
        return True
