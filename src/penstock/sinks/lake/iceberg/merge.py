"""Merges larger epochs without a MERGE. The tasks that decode the rows write them as data files, without a
shuffle. Deletion vectors mark the target's rows with the same keys as deleted. One commit adds both.

A MERGE by Spark converts all new rows and the keys of all existing rows to its own row format, sorts and
joins them, and writes the result. Here new rows stay Arrow. Of the target, only the key's columns are read,
and only from files whose bounds say that they may contain one of the keys.

As with small epochs, new rows replace those with the same keys. That is right if all of these are older
(`Newer`). Iceberg refuses the commit if anything was added since the version of the table in which this
commit was found to be missing, or if a data file with a new vector has been removed.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, Merged, MergeWriter, merged
from penstock.sinks.lake.iceberg.commits import Commits
from penstock.sinks.lake.iceberg.fence import row_delta
from penstock.sinks.lake.iceberg.files import (
    Classes,
    description,
    file_writer,
    key_writer,
    removed_if_refused,
)
from penstock.sinks.lake.iceberg.live import Live, LiveFiles, table_keys
from penstock.sinks.lake.iceberg.manifests import Content, KeySpan
from penstock.sinks.lake.iceberg.mark_rows import Marks, Placed, add_vectors
from penstock.sinks.lake.index.replaced import replaced
from penstock.sinks.lake.index.tables import Indexes, TableKeys
from penstock.sinks.lake.lookup import Unsearchable
from penstock.sinks.lake.recorded_commit import COMMIT
from penstock.sinks.rows import Newer, Rows


class FileMerges:
    def __init__(
        self, spark: SparkSession, classes: Classes, commits: Commits, indexes: Indexes[LiveFiles]
    ) -> None:
        self._spark = spark
        self._classes = classes
        self._commits = commits
        self._indexes = indexes

    def write(self, table: TableId, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Replaces the target's rows that have the same keys as these, in the layout `latest`. False, with
        nothing done: the table or these rows need a MERGE."""
        writer = file_writer(self._classes, target) if isinstance(rows.kind, Newer) else None
        if writer is None or not writer.folder.files.travels:
            return False
        if rows.shard is not None:
            key = (*key, rows.shard.column)
        keys = key_writer(writer, key)
        if keys is None:
            return False
        task = MergeWriter(writer, keys)
        found = merged(rows.through(task, MERGED), task)
        if found is None:
            return False
        locations = [file.location for file in found.rows]
        try:
            with removed_if_refused(target, writer.folder.files, locations):
                done = self._replace(table, target, task, found, locations, commit)
        finally:
            keys.remove(found.keys)
        if not done:
            writer.folder.files.remove(locations)
        return done

    def _replace(
        self,
        table: TableId,
        target: Any,
        task: MergeWriter,
        found: Merged,
        locations: list[str],
        commit: Commit,
    ) -> bool:
        index = table_keys(self._indexes, self._classes, table, target, task.keys)
        with index.changing:
            try:
                live = index.live.of(target)
                marks = self._marks(index, live, task, found)
            except Unsearchable:
                return False
            seen = target.currentSnapshot()  # the one that lacks the commit
            spec, order = target.spec(), target.sortOrder().orderId()  # those of the files
            transaction = target.newTransaction()  # loads the table again
            if found.rows or found.keys:
                change = row_delta(self._classes, transaction, seen)
                fields = task.rows.fields
                placed: Placed = {}
                new = [
                    Content(description(spec.specId(), file, fields, sort_order=order), 0)
                    for file in found.rows
                ]
                for file in new:
                    change.addRows(self._classes.described(file.described, spec))
                if marks is not None:
                    placed = add_vectors(self._classes, target, change, task.rows.folder, marks, locations)
                change.set(COMMIT, str(commit)).commit()
                staged = transaction.table().currentSnapshot()
                index.live.expect(live.after(int(staged.snapshotId()), new, placed))
            self._commits.record(transaction, transaction.table(), commit)
            transaction.commitTransaction()
        return True

    def _marks(
        self, index: TableKeys[LiveFiles], live: Live, task: MergeWriter, found: Merged
    ) -> Marks | None:
        """The rows with these keys, to be marked as deleted. None: there are none."""
        if not found.keys or not live.files:
            return None
        span = KeySpan.of_files(found.keys, task.keys.fields)
        files = [file for file in live.files.values() if span.may_be_in(file)]
        searched = [file.searched(live.vector(file.location)) for file in files]
        rows = replaced(self._spark, index, live, searched, found.keys)
        return Marks(live.files, live.deletes, rows)
