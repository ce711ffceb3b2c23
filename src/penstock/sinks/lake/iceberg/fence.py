"""Commits of rows that Iceberg refuses if somebody else has added rows meanwhile.

Iceberg repeats a commit that came second, on top of the first one. That is right for writers that know
nothing of each other. Two drivers of one pipeline would write the same rows twice. So each commit of ours
names the snapshot in which it was found to be missing, and Iceberg refuses it if any data file was added
since. Files that are only rewritten do not count.

`fence` adds a data file without rows, and with it, in one transaction, the generation as a property. So
Iceberg refuses a commit that was begun before, and one that is begun later sees the property. A write by
Spark itself (MERGE, DELETE) may still succeed if the fence comes between its look at the property and its
statement. That changes nothing for the worse: the write compares `_sequence`, and the next driver repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.sinks.base import GENERATION, Commit
from penstock.sinks.files import WrittenFile
from penstock.sinks.lake.iceberg.commits import Commits
from penstock.sinks.lake.iceberg.files import Classes, described, file_writer, removed_if_refused
from penstock.sinks.lake.recorded_commit import COMMIT


def row_delta(classes: Classes, transaction: Any, seen: Any) -> Any:
    """Begins a change of rows that is refused if files were added since the snapshot `seen` (None: the table
    had none). All files count, also without rows: a filter by columns would not find those."""
    change = transaction.newRowDelta()
    change.conflictDetectionFilter(classes.everything).validateNoConflictingDataFiles()
    if seen is not None:
        change.validateFromSnapshot(seen.snapshotId())
    return change


def add_files(
    classes: Classes,
    commits: Commits,
    target: Any,
    files: Sequence[WrittenFile],
    fields: pa.Schema,
    commit: Commit,
) -> None:
    """Commits data files and records the commit, in one transaction."""
    seen = target.currentSnapshot()  # before `newTransaction`, which loads the table again
    spec, order = target.spec(), target.sortOrder().orderId()
    transaction = target.newTransaction()
    if files:
        change = row_delta(classes, transaction, seen)
        for file in files:
            change.addRows(described(classes, spec, file, fields, sort_order=order))
        change.set(COMMIT, str(commit)).commit()
    commits.record(transaction, transaction.table(), commit)
    transaction.commitTransaction()


def delete_all(classes: Classes, commits: Commits, target: Any, commit: Commit) -> None:
    """Deletes all rows and records the commit, in one transaction."""
    seen = target.currentSnapshot()
    transaction = target.newTransaction()
    row_delta(classes, transaction, seen).commit()  # `newDelete` itself cannot be refused
    delete = transaction.newDelete().deleteFromRowFilter(classes.everything)
    delete.set(COMMIT, str(commit)).commit()
    commits.record(transaction, transaction.table(), commit)
    transaction.commitTransaction()


def generation(target: Any) -> int:
    return int(target.properties().get(GENERATION) or 0)


def fence(classes: Classes, target: Any, number: int) -> None:
    """See `LakeFormat.fence`. A table whose files Penstock cannot write only gets the property."""
    writer, spec, order = file_writer(classes, target), target.spec(), target.sortOrder().orderId()
    transaction = target.newTransaction()  # loads the table again
    if writer is None:
        Commits.record(transaction, transaction.table(), None, {GENERATION: str(number)})
        transaction.commitTransaction()
        return
    empty = writer.empty_file()
    with removed_if_refused(target, writer.folder.files, [empty.location]):
        change = transaction.newRowDelta()
        change.addRows(described(classes, spec, empty, writer.fields, sort_order=order)).commit()
        Commits.record(transaction, transaction.table(), None, {GENERATION: str(number)})
        transaction.commitTransaction()
