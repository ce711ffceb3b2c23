"""Equality deletes turned into deletion vectors.

An equality delete says which keys are gone, so whoever reads a data file has to hold all the keys of all
deletes that came after it. A deletion vector says which rows of one file are gone. To get from one to the
other, only the key's columns are read, of the files that a delete can concern (Iceberg compares their bounds
and their order of commits). Nothing changes for a reader, whichever of the two he meets.

The work is done on one snapshot while small commits go on: they add data and equality deletes, and never
touch what this replaces. Iceberg refuses the commit if anybody wrote a vector for one of these files or put
them together meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.sinks.lake.iceberg import puffin
from penstock.sinks.lake.iceberg.files import Classes, data_folder, removed_if_refused, schema_fields
from penstock.sinks.lake.iceberg.manifests import Content, Deletes, KeySpan, data_files, deletes
from penstock.sinks.lake.lookup import Found, rows_gone
from penstock.sinks.lake.vectors import Vector


def fold(spark: SparkSession, classes: Classes, target: Any) -> bool:
    """Replaces all equality deletes of an unpartitioned table's present snapshot. False: it has none.

    Raises `Unsearchable`, and what Iceberg raises if somebody else has changed the table in the way."""
    snapshot = target.currentSnapshot()
    folder = data_folder(target)
    if snapshot is None or folder is None or snapshot.summary().get("total-equality-deletes") == "0":
        return False
    present = deletes(classes, target, snapshot)
    if not present.equality:
        return False
    texts = {column["id"] for column in schema_fields(classes, target) if column["type"] == "string"}
    files = _concerned(data_files(classes, target, snapshot), present.equality, texts)
    searched = [file.searched(present.vector(file.location)) for file in files]
    found = rows_gone(spark, searched, [one.keys() for one in present.equality])
    change = target.newRowDelta()
    for delete in present.equality:
        change.removeDeletes(delete.told(classes, target))
    written: list[str] = []
    with removed_if_refused(written):
        mark(classes, target, change, folder, present, found, written)
        change.validateFromSnapshot(snapshot.snapshotId()).conflictDetectionFilter(classes.everything)
        change.commit()
    return True


def mark(
    classes: Classes,
    target: Any,
    change: Any,
    folder: Path,
    present: Deletes,
    found: Sequence[Found],
    written: list[str],
) -> None:
    """Takes found rows out of their data files. Iceberg refuses the commit if one of these has gone.
    `written` is told of the file that is written for it."""
    found = [one for one in found if one[2]]
    if not found:
        return
    path = folder / f"{uuid.uuid4()}-deletes.puffin"
    written.append(str(path))
    placed = puffin.write(path, found)
    size = path.stat().st_size
    for (location, _, count), vector in zip(found, placed, strict=True):
        if location in present.vectors:
            change.removeDeletes(present.vectors[location].told(classes, target))
        change.addDeletes(_described(classes, target, location, vector, count, size))
    change.validateDataFilesExist(classes.list_of([location for location, _, _ in found]))
    change.validateDeletedFiles()


def _concerned(
    files: Iterable[Content], equality: Sequence[Content], texts: Container[int]
) -> Iterator[Content]:
    """Data files that may have a row with one of the keys."""
    spans = [(one.sequence, KeySpan.of_delete(one, texts)) for one in equality]
    spans.sort(key=lambda one: one[0], reverse=True)
    for file in files:
        if any(file.sequence < sequence and span.may_be_in(file) for sequence, span in spans):
            yield file


def _described(
    classes: Classes, target: Any, location: str, vector: Vector, count: int, file_bytes: int
) -> Any:
    """A vector of `count` rows of the data file at `location`, for Iceberg."""
    described = {
        "spec-id": target.spec().specId(),
        "content": "POSITION_DELETES",
        "file-path": vector.path,
        "file-format": "PUFFIN",
        "partition": {},
        "file-size-in-bytes": file_bytes,
        "record-count": count,
        "referenced-data-file": location,
        "content-offset": vector.offset,
        "content-size-in-bytes": vector.size,
    }
    return classes.described(described, target.spec())
