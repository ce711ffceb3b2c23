"""Larger epochs without a MERGE: the tasks that make the rows write them as data files, no row is shuffled,
and what the target has of their keys is marked as gone by deletion vectors. One commit of both.

A MERGE by Spark takes every row that comes and the keys of every row that is there through its own row
format, sorts and joins them, and writes the outcome. Here what comes stays Arrow, and of the target only the
key's columns are read, of those files whose bounds say that they may hold one of the keys.

As with small epochs, rows simply take the place of those with their keys: right where all that the target
has of them is older (`ApplyEvents.newer`). Iceberg refuses the commit if anything was added since the state
of the table in which this very commit was not found, or if a file that it marks rows of has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, MergeWriter, Rows, field_id, merged
from penstock.sinks.lake.iceberg.commits import COMMIT, Commits
from penstock.sinks.lake.iceberg.files import (
    Classes,
    data_folder,
    file_writer,
    key_writer,
    removed_if_refused,
    small_file,
)
from penstock.sinks.lake.iceberg.fold_deletes import mark
from penstock.sinks.lake.iceberg.manifests import KeySpan, data_files, deletes
from penstock.sinks.lake.lookup import KeyFile, Unsearchable, rows_gone


class FileMerges:
    def __init__(self, spark: SparkSession, classes: Classes, commits: Commits) -> None:
        self._spark = spark
        self._classes = classes
        self._commits = commits

    def write(self, target: Any, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Puts rows of layout `latest` in the place of what the target has of their keys. False, with nothing
        done: the table or these rows need a MERGE."""
        writer = file_writer(self._classes, target) if rows.newer else None
        if writer is None:
            return False
        if rows.within is not None:
            key = (*key, rows.within[0])
        keys = key_writer(writer, key)
        if keys is None:
            return False
        seen = target.currentSnapshot()  # what the commit was found missing in
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
            if rows.within is None:
                concerned = self._classes.everything
            else:
                concerned = self._classes.equal(*rows.within)
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
        """Takes the rows with these keys out of the files that may hold one. `written` is told of what is
        written for it."""
        numbers = tuple(number for field in fields if (number := field_id(field)) is not None)
        span = KeySpan.of_files(keys, fields)
        present = deletes(self._classes, target, seen)
        searched = [
            file.searched(present.vector(file.location))
            for file in data_files(self._classes, target, seen)
            if span.may_be_in(file)
        ]
        found = rows_gone(self._spark, searched, [KeyFile(path, numbers) for path in keys])
        folder = data_folder(target)
        assert folder is not None, "it has a writer"
        mark(self._classes, target, change, folder, present, found, written)
