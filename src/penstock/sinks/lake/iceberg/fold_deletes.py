"""Converts equality deletes into deletion vectors.

An equality delete names deleted keys. A reader of a data file must compare each row with the keys of all
deletes that were committed after the file. A deletion vector names the deleted rows of one data file, which
is much cheaper to read. The conversion reads only the key's columns, of those files that may contain one of
the keys, by their bounds and the order of commits. Readers see the same rows before and after.

The conversion works on one snapshot, while small commits go on: these add data files and equality deletes,
and never change what is replaced here. Iceberg refuses the commit if somebody else has meanwhile written a
vector for one of the data files, or has rewritten them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.sinks.lake.iceberg import position_deletes, puffin
from penstock.sinks.lake.iceberg.files import Classes, removed_if_refused, schema_fields
from penstock.sinks.lake.iceberg.manifests import Content, Deletes, KeySpan, comparable, data_files, deletes
from penstock.sinks.lake.lookup import Found, deleted_rows
from penstock.sinks.lake.vectors import Vector
from penstock.store.files import Folder


def fold(spark: SparkSession, classes: Classes, target: Any) -> bool:
    """Replaces all equality deletes in the current snapshot of a table. False: there are none.

    Raises `Unsearchable`, and Iceberg's errors if somebody else has changed the same files."""
    snapshot = target.currentSnapshot()
    folder = classes.folder(target)
    if snapshot is None or folder is None or snapshot.summary().get("total-equality-deletes") == "0":
        return False
    present = deletes(classes, target, snapshot)
    if not present.equality:
        return False
    kinds = comparable(schema_fields(classes, target))
    files = list(_concerned(data_files(classes, target, snapshot), present.equality, kinds))
    searched = [file.searched(present.vector(file.location)) for file in files]
    found = deleted_rows(spark, folder.files, searched, [one.keys() for one in present.equality])
    change = target.newRowDelta()
    for delete in present.equality:
        change.removeDeletes(delete.to_iceberg(classes, target))
    written: list[str] = []
    with removed_if_refused(folder.files, written):
        add_vectors(classes, target, change, folder, Marks(files, present, found), written)
        change.validateFromSnapshot(snapshot.snapshotId()).conflictDetectionFilter(classes.everything)
        change.commit()
    return True


@dataclass(frozen=True)
class Marks:
    """Rows of `files` to mark as deleted: `found`, which includes those that `present` marks already."""

    files: Sequence[Content]
    present: Deletes
    found: Sequence[Found]


def add_vectors(
    classes: Classes, target: Any, change: Any, folder: Folder, marks: Marks, written: list[str]
) -> None:
    """Marks rows as deleted, as part of `change`: by deletion vectors, or in format version 2 by files of
    position deletes. Iceberg refuses the commit if one of their data files has been removed. The locations of
    new files are appended to `written`."""
    found = [one for one in marks.found if one[2]]
    if not found:
        return
    files = {file.location: file for file in marks.files}
    if classes.is_v3(target):
        placed, size = puffin.write(folder, found)
        written.append(placed[0].location)
        new = [
            _described(files[location], vector, count, size)
            for (location, _, count), vector in zip(found, placed, strict=True)
        ]
    else:
        new = position_deletes.write(folder, [(files[one[0]], one[1]) for one in found])
        written += [one.location for one in new]
    for location, _, _ in found:
        for earlier in marks.present.vectors.get(location, ()):
            change.removeDeletes(earlier.to_iceberg(classes, target))
    for one in new:
        change.addDeletes(one.to_iceberg(classes, target))
    change.validateDataFilesExist(classes.list_of([location for location, _, _ in found]))
    change.validateDeletedFiles()


def _concerned(
    files: Iterable[Content], equality: Sequence[Content], kinds: Mapping[int, bool]
) -> Iterator[Content]:
    """The data files that may contain one of the keys."""
    spans = [(one.sequence, KeySpan.of_delete(one, kinds)) for one in equality]
    spans.sort(key=lambda one: one[0], reverse=True)
    for file in files:
        if any(file.sequence < sequence and span.may_be_in(file) for sequence, span in spans):
            yield file


def _described(file: Content, vector: Vector, count: int, file_bytes: int) -> Content:
    """A vector with `count` rows of the data file. It belongs to the file's partition."""
    described = {
        "spec-id": file.described["spec-id"],
        "content": "POSITION_DELETES",
        "file-path": vector.location,
        "file-format": "PUFFIN",
        "partition": file.described["partition"],
        "file-size-in-bytes": file_bytes,
        "record-count": count,
        "referenced-data-file": file.location,
        "content-offset": vector.offset,
        "content-size-in-bytes": vector.size,
    }
    return Content(described, file.sequence)
