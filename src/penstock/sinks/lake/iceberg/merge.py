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

from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, Merged, MergeWriter, merged
from penstock.sinks.lake.iceberg.commits import COMMIT, Commits
from penstock.sinks.lake.iceberg.fence import row_delta
from penstock.sinks.lake.iceberg.files import (
    Classes,
    described,
    file_writer,
    key_writer,
    removed_if_refused,
)
from penstock.sinks.lake.iceberg.manifests import KeySpan, data_files, deletes
from penstock.sinks.lake.iceberg.mark_rows import Marks, add_vectors
from penstock.sinks.lake.lookup import Unsearchable, deleted_rows, key_files
from penstock.sinks.rows import Newer, Rows


class FileMerges:
    def __init__(self, spark: SparkSession, classes: Classes, commits: Commits) -> None:
        self._spark = spark
        self._classes = classes
        self._commits = commits

    def write(self, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
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
        seen = target.currentSnapshot()  # the one that lacks the commit
        task = MergeWriter(writer, keys)
        found = merged(rows.through(task, MERGED), task)
        if found is None:
            return False
        locations = [file.location for file in found.rows]
        try:
            with removed_if_refused(writer.folder.files, locations):
                done = self._replace(target, seen, task, found, locations, commit)
        finally:
            keys.remove(found.keys)
        if not done:
            writer.folder.files.remove(locations)
        return done

    def _replace(
        self,
        target: Any,
        seen: Any,
        task: MergeWriter,
        found: Merged,
        locations: list[str],
        commit: Commit,
    ) -> bool:
        transaction = target.newTransaction()
        if found.rows or found.keys:
            change = row_delta(self._classes, transaction, seen)
            spec, order = target.spec(), target.sortOrder().orderId()
            for file in found.rows:
                change.addRows(described(self._classes, spec, file, task.rows.fields, sort_order=order))
            if found.keys and seen is not None:
                try:
                    self._mark(target, seen, change, task, found, locations)
                except Unsearchable:
                    return False
            change.set(COMMIT, str(commit)).commit()
        self._commits.record(transaction, transaction.table(), commit)
        transaction.commitTransaction()
        return True

    def _mark(
        self,
        target: Any,
        seen: Any,
        change: Any,
        task: MergeWriter,
        found: Merged,
        written: list[str],
    ) -> None:
        """Marks the rows with these keys as deleted. The location of the vectors' file is appended to
        `written`."""
        fields, folder = task.keys.fields, task.keys.folder
        span = KeySpan.of_files(found.keys, fields)
        present = deletes(self._classes, target, seen)
        files = [file for file in data_files(self._classes, target, seen) if span.may_be_in(file)]
        searched = [file.searched(present.vector(file.location)) for file in files]
        deleted = deleted_rows(self._spark, folder.files, searched, key_files(found.keys, fields))
        marks = Marks({file.location: file for file in files}, present, deleted)
        add_vectors(self._classes, target, change, folder, marks, written)
