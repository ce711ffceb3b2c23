"""Epochs without a MERGE: the tasks that make the rows write them as data files, no row is shuffled, and what
the target has of their keys is marked as gone by deletion vectors. One commit of both.

As in Iceberg (`lake/iceberg/merge.py` says what is saved), rows simply take the place of those with their
keys: right where all that the target has of them is older (`ApplyEvents.newer`). The commit is made from the
snapshot that was looked through, and in which this very commit was not found; Delta refuses it if anybody
has added rows or removed files since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.sinks.base import Commit
from penstock.sinks.files import MERGED, FileWriter, MergeWriter, Rows, by_content, field_id, merged
from penstock.sinks.lake.delta import vectors
from penstock.sinks.lake.delta.commits import Action, Commits
from penstock.sinks.lake.delta.files import (
    added,
    data_folder,
    file_writer,
    key_writer,
    local_path,
    marked,
    removed,
    statistics,
    takes_vectors,
)
from penstock.sinks.lake.lookup import DataFile, KeyFile, Unsearchable, rows_gone


class FileMerges:
    def __init__(self, spark: SparkSession, commits: Commits) -> None:
        self._spark = spark
        self._commits = commits

    def write(self, snapshot: Any, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Puts rows of layout `latest` in the place of what the target has of their keys. False, with nothing
        done: the table or these rows need a MERGE."""
        if not rows.newer or rows.present is not None or not takes_vectors(snapshot):
            return False
        writer = file_writer(self._spark, snapshot)
        if writer is None:
            return False
        keys = key_writer(writer, key if rows.within is None else (*key, rows.within[0]))
        if keys is None:
            return False
        task = MergeWriter(writer, keys)
        found = by_content(task.files(rows.here())) if rows.here else merged(rows.through(task, MERGED))
        try:
            done = not found["null"] and self._replace(snapshot, found["rows"], found["keys"], keys, commit)
        finally:
            for path in found["keys"]:
                Path(path).unlink()
        if not done:
            for path in found["rows"]:
                Path(path).unlink()
        return done

    def _replace(
        self, snapshot: Any, new: Sequence[str], keys: Sequence[str], writer: FileWriter, commit: Commit
    ) -> bool:
        try:
            marks = list(self._marks(snapshot, keys, writer)) if keys else []
        except Unsearchable:
            return False
        self._commits.write(snapshot, commit, [*marks, *map(added, new)], reads=True)
        return True

    def _marks(self, snapshot: Any, keys: Sequence[str], writer: FileWriter) -> Iterator[Action]:
        """Takes the rows with these keys from the files that have them."""
        folder = data_folder(snapshot)
        assert folder is not None, "it has a writer"
        numbers = tuple(number for field in writer.fields if (number := field_id(field)) is not None)
        lookups = [KeyFile(path, numbers) for path in keys]
        span = KeySpan.of(keys)
        files, known, searched = {}, {}, []
        for file in self._commits.checksums.files(snapshot):
            stats = json.loads(file.get("stats") or "{}")
            if span.may_be_in(stats):
                location = file["path"]
                files[location], known[location] = file, stats
                searched.append(_data_file(folder, file, stats))
        partly = []
        for location, bitmap, count in rows_gone(self._spark, searched, lookups):
            if not count:
                continue
            if count == known[location]["numRecords"]:
                yield removed(files[location])
            else:
                partly.append((location, bitmap, count))
        placed = vectors.write(folder, [(bitmap, count) for _, bitmap, count in partly]) if partly else []
        for (location, _, _), vector in zip(partly, placed, strict=True):
            yield removed(files[location])
            yield marked(files[location], known[location], vector)


def _data_file(folder: Path, file: dict[str, Any], stats: dict[str, Any]) -> DataFile:
    path, rows = local_path(folder, file["path"]), stats.get("numRecords")
    if path is None or rows is None:
        raise Unsearchable(f"{file['path']} is elsewhere, or nobody has counted its rows")
    descriptor = file.get("deletionVector")
    vector = None if descriptor is None else vectors.place(folder, descriptor)
    return DataFile(file["path"], str(path), rows, vector)


@dataclass(frozen=True)
class KeySpan:
    """The least and the greatest values of a key's columns, as Delta's statistics have them: texts in the
    order of their code points, which is that of their bytes."""

    least: dict[str, Any]
    greatest: dict[str, Any]

    @classmethod
    def of(cls, paths: Sequence[str]) -> KeySpan:
        found = [statistics(pq.read_metadata(path), text_max=1 << 20) for path in paths]
        whole = [name for name in found[0]["minValues"] if all(name in one["minValues"] for one in found)]
        return cls(
            {name: min(one["minValues"][name] for one in found) for name in whole},
            {name: max(one["maxValues"][name] for one in found) for name in whole},
        )

    def may_be_in(self, stats: dict[str, Any]) -> bool:
        """Whether a data file with these statistics may have a row with one of the keys."""
        lower, upper = stats.get("minValues", {}), stats.get("maxValues", {})
        for name, least in self.least.items():
            low, high = lower.get(name), upper.get(name)
            if type(low) is not type(least) or type(high) is not type(least):
                continue
            if high < least or low > self.greatest[name]:
                return False
        return True
