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

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, MergeWriter, field_id, merged
from penstock.sinks.lake.iceberg.commits import COMMIT, Commits
from penstock.sinks.lake.iceberg.files import (
    Classes,
    data_folder,
    file_writer,
    key_writer,
    removed_if_refused,
    small_file,
)
from penstock.sinks.lake.iceberg.fold_deletes import add_vectors
from penstock.sinks.lake.iceberg.manifests import KeySpan, data_files, deletes
from penstock.sinks.lake.lookup import KeyFile, Unsearchable, deleted_rows
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
        if writer is None:
            return False
        if rows.shard is not None:
            key = (*key, rows.shard.column)
        keys = key_writer(writer, key)
        if keys is None:
            return False
        seen = target.currentSnapshot()  # the one that lacks the commit
        found = merged(rows.through(MergeWriter(writer, keys), MERGED))
        added = list(found["rows"])
        try:
            with removed_if_refused(added):
                done = not found["null"] and self._replace(
                    target, seen, added, found["keys"], keys.fields, rows, commit
                )
        finally:
            for path in found["keys"]:
                Path(path).unlink()
        if not done:
            for path in added:
                Path(path).unlink()
        return done

    def _replace(
        self,
        target: Any,
        seen: Any,
        added: list[str],
        keys: Sequence[str],
        fields: pa.Schema,
        rows: Rows,
        commit: Commit,
    ) -> bool:
        transaction = target.newTransaction()
        if added or keys:
            change = transaction.newRowDelta()
            for path in added:
                change.addRows(small_file(self._classes, target.spec(), path))
            if keys and seen is not None:
                try:
                    self._mark(target, seen, change, keys, fields, added)
                except Unsearchable:
                    return False
            if rows.shard is None:
                concerned = self._classes.everything
            else:
                concerned = self._classes.equal(rows.shard.column, rows.shard.value)
            change.conflictDetectionFilter(concerned).validateNoConflictingDataFiles()
            if seen is not None:
                change.validateFromSnapshot(seen.snapshotId())
            change.set(COMMIT, str(commit)).commit()
        self._commits.record(transaction, transaction.table(), commit)
        transaction.commitTransaction()
        return True

    def _mark(
        self,
        target: Any,
        seen: Any,
        change: Any,
        keys: Sequence[str],
        fields: pa.Schema,
        written: list[str],
    ) -> None:
        """Marks the rows with these keys as deleted. The path of the vectors' file is appended to
        `written`."""
        numbers = tuple(number for field in fields if (number := field_id(field)) is not None)
        span = KeySpan.of_files(keys, fields)
        present = deletes(self._classes, target, seen)
        searched = [
            file.searched(present.vector(file.location))
            for file in data_files(self._classes, target, seen)
            if span.may_be_in(file)
        ]
        found = deleted_rows(self._spark, searched, [KeyFile(path, numbers) for path in keys])
        folder = data_folder(target)
        assert folder is not None, "it has a writer"
        add_vectors(self._classes, target, change, folder, present, found, written)
