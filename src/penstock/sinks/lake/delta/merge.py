"""Merges epochs without a MERGE. The tasks that decode the rows write them as data files, without a shuffle.
Deletion vectors mark the target's rows with the same keys as deleted. One commit adds both.

As in Iceberg (`lake/iceberg/merge.py` says why this is faster), new rows replace those with the same keys.
That is right if all of these are older (`Newer`). The commit starts from the snapshot that was searched for
keys and in which this commit was found to be missing. Delta refuses it if anybody has added rows or removed
files since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, Merged, MergeWriter, WrittenFile, merged
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.delta import vectors
from penstock.sinks.lake.delta.commits import Action, Commits
from penstock.sinks.lake.delta.files import (
    added,
    clustering,
    file_writer,
    key_writer,
    location_of,
    removed,
    statistics,
    takes_vectors,
    with_vector,
)
from penstock.sinks.lake.lookup import DataFile, Unsearchable, deleted_rows, key_files
from penstock.sinks.rows import Newer, Rows
from penstock.store.files import Folder


class FileMerges:
    def __init__(self, spark: SparkSession, access: Access, commits: Commits) -> None:
        self._spark = spark
        self._access = access
        self._commits = commits

    def write(self, snapshot: Any, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
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
            done = self._replace(snapshot, task, found, commit)
        finally:
            keys.remove(found.keys)
        if not done:
            writer.remove(found.rows)
        return done

    def _replace(self, snapshot: Any, task: MergeWriter, found: Merged, commit: Commit) -> bool:
        try:
            deletes = list(self._deletes(snapshot, task, found)) if found.keys else []
        except Unsearchable:
            return False
        clustered = clustering(self._spark, snapshot)
        new = [added(file, task.rows, clustered) for file in found.rows]
        self._commits.write(snapshot, commit, [*deletes, *new], reads=True)
        return True

    def _deletes(self, snapshot: Any, task: MergeWriter, found: Merged) -> Iterator[Action]:
        """The log entries that delete the rows with these keys."""
        fields, folder = task.keys.fields, task.keys.folder
        span = KeySpan.of(found.keys, fields)
        files, known, searched = {}, {}, []
        for file in self._commits.checksums.files(snapshot):
            stats = json.loads(file.get("stats") or "{}")
            if span.may_be_in(stats):
                location = file["path"]
                files[location], known[location] = file, stats
                searched.append(_data_file(folder, file, stats))
        partly = []
        for location, bitmap, count in deleted_rows(
            self._spark, folder.files, searched, key_files(found.keys, fields)
        ):
            if not count:
                continue
            if count == known[location]["numRecords"]:
                yield removed(files[location])
            else:
                partly.append((location, bitmap, count))
        placed = vectors.write(folder, [(bitmap, count) for _, bitmap, count in partly]) if partly else []
        for (location, _, _), vector in zip(partly, placed, strict=True):
            yield removed(files[location])
            yield with_vector(files[location], known[location], vector)


def _data_file(folder: Folder, file: dict[str, Any], stats: dict[str, Any]) -> DataFile:
    path, rows = location_of(folder, file["path"]), stats.get("numRecords")
    if path is None or rows is None:
        raise Unsearchable(f"{file['path']} is not in the table's directory, or has no row count")
    descriptor = file.get("deletionVector")
    vector = None if descriptor is None else vectors.place(folder, descriptor)
    return DataFile(file["path"], path, file["size"], rows, vector)


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
