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

import json
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, MergeWriter, Rows, field_id, merged
from penstock.sinks.iceberg import puffin
from penstock.sinks.iceberg.commits import COMMIT, Commits
from penstock.sinks.iceberg.files import (
    Classes,
    bounds,
    data_folder,
    each,
    file_writer,
    key_writer,
    small_file,
)
from penstock.sinks.iceberg.fold import data_file, described_vector, vector_of
from penstock.sinks.lookup import DataFile, KeyFile, Unsearchable, rows_gone


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
        try:
            if found["null"]:
                done = False
            else:
                done = self._replace(target, seen, found["rows"], found["keys"], keys.fields, rows, commit)
        finally:
            for path in found["keys"]:
                Path(path).unlink()
        if not done:
            for path in found["rows"]:
                Path(path).unlink()
        return done

    def _replace(
        self,
        target: Any,
        seen: Any,
        added: Sequence[str],
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
                    self._mark(target, seen, change, keys, fields)
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

    def _mark(self, target: Any, seen: Any, change: Any, keys: Sequence[str], fields: pa.Schema) -> None:
        """Deletion vectors for the rows with these keys."""
        tasks, replaced = self._plan(target, seen, keys, fields)
        found = [one for one in rows_gone(self._spark, tasks) if one[2]]
        if not found:
            return
        folder = data_folder(target)
        assert folder is not None, "it has a writer"
        path = folder / f"{uuid.uuid4()}-deletes.puffin"
        placed = puffin.write(path, found)
        size = path.stat().st_size
        for (location, _, count), vector in zip(found, placed, strict=True):
            if location in replaced:
                change.removeDeletes(replaced[location])
            change.addDeletes(described_vector(self._classes, target, location, vector, count, size))
        change.validateDataFilesExist(self._classes.list_of([location for location, _, _ in found]))
        change.validateDeletedFiles()

    def _plan(
        self, target: Any, seen: Any, keys: Sequence[str], fields: pa.Schema
    ) -> tuple[list[DataFile], dict[str, Any]]:
        """The files that may hold one of the keys, and the vectors that there are, by the location of their
        data file."""
        numbers = tuple(number for field in fields if (number := field_id(field)) is not None)
        deletes = tuple(KeyFile(path, numbers) for path in keys)
        span = KeySpan.of(keys, fields)
        tasks, replaced = [], {}
        for one in each(target.newScan().useSnapshot(seen.snapshotId()).includeColumnStats().planFiles()):
            described = json.loads(self._classes.task_json(one))
            data = described["data-file"]
            if not span.may_be_in(data):
                continue
            location, vector = data["file-path"], None
            for place, delete in enumerate(described.get("delete-files", [])):
                if "equality-ids" not in delete:
                    vector = vector_of(delete)
                    replaced[location] = one.deletes()[place].copy()
            tasks.append(data_file(data, deletes, vector))
        return tasks, replaced


@dataclass(frozen=True)
class KeySpan:
    """The least and the greatest values of a key's columns, of those whose order is the same everywhere; by
    Iceberg field id. Integers, or texts as UTF-8."""

    least: dict[int, int | bytes]
    greatest: dict[int, int | bytes]

    @classmethod
    def of(cls, paths: Sequence[str], fields: pa.Schema) -> KeySpan:
        kinds = {field_id(field): field.type for field in fields}
        least: dict[int, list[int | bytes]] = {}
        greatest: dict[int, list[int | bytes]] = {}
        for path in paths:
            for bound, into in zip(bounds(pq.read_metadata(path)), (least, greatest), strict=True):
                for number, value in bound.items():
                    into.setdefault(number, []).append(_comparable(value, kinds[number]))
        whole = [number for number, values in least.items() if len(values) == len(paths)]
        return cls({n: min(least[n]) for n in whole}, {n: max(greatest[n]) for n in whole})

    def may_be_in(self, data_file: dict[str, Any]) -> bool:
        """Whether a data file, as Iceberg describes it, may have a row with one of the keys."""
        lower, upper = (_bounds(data_file.get(name)) for name in ("lower-bounds", "upper-bounds"))
        for number, least in self.least.items():
            if number not in lower or number not in upper:
                continue
            low, high = (_like(value, least) for value in (lower[number], upper[number]))
            if high < least or low > self.greatest[number]:
                return False
        return True


def _bounds(described: dict[str, Any] | None) -> dict[int, bytes]:
    if described is None:
        return {}
    return {
        number: bytes.fromhex(value)
        for number, value in zip(described["keys"], described["values"], strict=True)
    }


def _comparable(value: bytes, kind: pa.DataType) -> int | bytes:
    return value if kind == pa.string() else _integer(value)


def _like(value: bytes, other: int | bytes) -> Any:
    return value if isinstance(other, bytes) else _integer(value)


def _integer(value: bytes) -> int:
    """Of 4 or 8 bytes: the file may be older than the column's wider type."""
    found: int = struct.unpack("<i" if len(value) == 4 else "<q", value)[0]
    return found
