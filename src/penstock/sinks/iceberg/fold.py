"""Equality deletes turned into deletion vectors.

An equality delete says which keys are gone, so whoever reads a data file has to hold all the keys of all
deletes that came after it. A deletion vector says which rows of one file are gone. To get from one to the
other, only the key's columns are read, of the files that a delete can concern (Iceberg compares their bounds
and their order of commits). Nothing changes for a reader, whichever of the two he meets.

The work is done on one snapshot while small commits go on: they add data and equality deletes, and never
touch what this replaces. Iceberg refuses the commit if anybody wrote a vector for one of these files
meanwhile.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from penstock.sinks.iceberg import puffin
from penstock.sinks.iceberg.files import Classes, data_folder, each, local_path
from penstock.sinks.lookup import DataFile, KeyFile, Unsearchable, rows_gone
from penstock.sinks.vectors import Vector


def fold(spark: SparkSession, classes: Classes, target: Any) -> bool:
    """Replaces all equality deletes of an unpartitioned table's present snapshot. False: it has none.

    Raises `Unsearchable`, and what Iceberg raises if somebody else has changed the table in the way."""
    snapshot = target.currentSnapshot()
    folder = data_folder(target)
    if snapshot is None or folder is None or snapshot.summary().get("total-equality-deletes") == "0":
        return False
    obsolete = list(_equality_deletes(classes, target, snapshot))
    if not obsolete:
        return False
    tasks, replaced = _plan(classes, target, snapshot)
    found = [one for one in rows_gone(spark, tasks) if one[2]]
    path = folder / f"{uuid.uuid4()}-deletes.puffin"
    placed = puffin.write(path, found) if found else []
    change = target.newRowDelta()
    for delete in obsolete:
        change.removeDeletes(delete)
    for (location, _, count), vector in zip(found, placed, strict=True):
        if location in replaced:
            change.removeDeletes(replaced[location])
        change.addDeletes(described_vector(classes, target, location, vector, count, path.stat().st_size))
    change.validateFromSnapshot(snapshot.snapshotId()).conflictDetectionFilter(classes.everything).commit()
    return True


def _equality_deletes(classes: Classes, target: Any, snapshot: Any) -> Iterator[Any]:
    """All of them, also those that concern no file any more."""
    io, specs = target.io(), target.specs()
    for manifest in snapshot.deleteManifests(io):
        reader = classes.delete_manifest(manifest, io, specs)
        for delete in each(reader):
            if delete.content().toString() == "EQUALITY_DELETES":
                yield delete.copy()


def _plan(classes: Classes, target: Any, snapshot: Any) -> tuple[list[DataFile], dict[str, Any]]:
    """What is to be looked at, and the vectors that there are, by the location of their data file."""
    tasks, replaced = [], {}
    for one in each(target.newScan().useSnapshot(snapshot.snapshotId()).planFiles()):
        described = json.loads(classes.task_json(one))
        held = described.get("delete-files", [])
        keys = [_deletes(delete) for delete in held if "equality-ids" in delete]
        if not keys:
            continue
        data = described["data-file"]
        location, vector = data["file-path"], None
        for place, delete in enumerate(held):
            if "equality-ids" not in delete:
                vector = vector_of(delete)
                replaced[location] = one.deletes()[place].copy()
        tasks.append(data_file(data, tuple(keys), vector))
    return tasks, replaced


def data_file(described: dict[str, Any], keys: tuple[KeyFile, ...], vector: Vector | None) -> DataFile:
    """A data file as Iceberg describes it."""
    location = described["file-path"]
    return DataFile(location, str(local_path(location)), described["record-count"], keys, vector)


def _deletes(described: dict[str, Any]) -> KeyFile:
    return KeyFile(str(local_path(described["file-path"])), tuple(described["equality-ids"]))


def vector_of(described: dict[str, Any]) -> Vector:
    """Of a delete file as Iceberg describes it."""
    if "content-offset" not in described:
        raise Unsearchable(f"{described['file-path']} holds position deletes of format version 2")
    path = str(local_path(described["file-path"]))
    return Vector(path, described["content-offset"], described["content-size-in-bytes"])


def described_vector(
    classes: Classes, target: Any, location: str, vector: Vector, count: int, file_bytes: int
) -> Any:
    """A vector of `count` rows of the data file at `location`, for Iceberg."""
    builder = classes.delete_file(target.spec())
    builder = builder.ofPositionDeletes().withFormat("PUFFIN").withPath(vector.path)
    builder = builder.withReferencedDataFile(location).withFileSizeInBytes(file_bytes)
    builder = builder.withContentOffset(vector.offset).withContentSizeInBytes(vector.size)
    return builder.withRecordCount(count).build()
