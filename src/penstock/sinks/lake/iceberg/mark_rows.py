"""Marks rows of data files as deleted, by deletion vectors, or in format version 2 by files of position
deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.sinks.lake.iceberg import position_deletes, puffin
from penstock.sinks.lake.iceberg.files import ADD_DELETES, REMOVE_DELETES, Classes
from penstock.sinks.lake.iceberg.manifests import Content, Deletes
from penstock.sinks.lake.lookup import Found
from penstock.sinks.lake.vectors import Vector
from penstock.store.files import Folder

Placed = Mapping[str, Sequence[Content]]
"""New vectors, by the location of their data file."""


@dataclass(frozen=True)
class Marks:
    """Rows of `files` to mark as deleted: `found`, which includes those that `present` marks already."""

    files: Mapping[str, Content]
    """The data files, by location."""
    present: Deletes
    found: Sequence[Found]


def add_vectors(
    classes: Classes, target: Any, change: Any, folder: Folder, marks: Marks, written: list[str]
) -> Placed:
    """Marks rows as deleted, as part of `change`. Iceberg refuses the commit if one of their data files has
    been removed. The locations of new files are appended to `written`."""
    found = [one for one in marks.found if one[2]]
    if not found:
        return {}
    placed = new_vectors(classes, target, folder, marks.files, found, written)
    earlier = [one.described for at, _, _ in found for one in marks.present.vectors.get(at, ())]
    classes.for_each(target, REMOVE_DELETES, change, earlier)
    new = [one.described for several in placed.values() for one in several]
    classes.for_each(target, ADD_DELETES, change, new)
    change.validateDataFilesExist(classes.list_of([location for location, _, _ in found]))
    change.validateDeletedFiles()
    return placed


def new_vectors(
    classes: Classes,
    target: Any,
    folder: Folder,
    files: Mapping[str, Content],
    found: Sequence[Found],
    written: list[str],
) -> Placed:
    """Writes the vectors of data files. `files`: these, by location. The locations of new files are appended
    to `written`."""
    if classes.is_v3(target):
        vectors, size = puffin.write(folder, found)
        written.append(vectors[0].location)
        return {
            location: (_described(files[location], vector, count, size),)
            for (location, _, count), vector in zip(found, vectors, strict=True)
        }
    new = position_deletes.write(folder, [(files[location], bitmap) for location, bitmap, _ in found])
    written += [one.location for one in new]
    placed: dict[str, list[Content]] = {}
    for one in new:
        placed.setdefault(one.described["referenced-data-file"], []).append(one)
    return placed


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
