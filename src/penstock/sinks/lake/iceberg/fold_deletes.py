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
from typing import Any

from pyspark.sql import SparkSession

from penstock.sinks.lake.iceberg.files import REMOVE_DELETES, Classes, removed_if_refused, schema_fields
from penstock.sinks.lake.iceberg.manifests import Content, KeySpan, comparable, data_files, deletes
from penstock.sinks.lake.iceberg.mark_rows import Marks, add_vectors
from penstock.sinks.lake.lookup import deleted_rows


def has_equality_deletes(target: Any) -> bool:
    """Whether the summary of the table's current snapshot counts equality deletes. Some writers leave the
    count out."""
    snapshot = target.currentSnapshot()
    return snapshot is not None and snapshot.summary().get("total-equality-deletes") not in (None, "0")


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
    classes.for_each(target, REMOVE_DELETES, change, [one.described for one in present.equality])
    written: list[str] = []
    with removed_if_refused(target, folder.files, written):
        add_vectors(
            classes,
            target,
            change,
            folder,
            Marks({file.location: file for file in files}, present, found),
            written,
        )
        change.validateFromSnapshot(snapshot.snapshotId()).conflictDetectionFilter(classes.everything)
        change.commit()
    return True


def _concerned(
    files: Iterable[Content], equality: Sequence[Content], kinds: Mapping[int, bool]
) -> Iterator[Content]:
    """The data files that may contain one of the keys."""
    spans = [(one.sequence, KeySpan.of_delete(one, kinds)) for one in equality]
    spans.sort(key=lambda one: one[0], reverse=True)
    for file in files:
        if any(file.sequence < sequence and span.may_be_in(file) for sequence, span in spans):
            yield file
