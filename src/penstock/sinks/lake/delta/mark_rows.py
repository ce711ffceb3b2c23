"""Marks rows of data files as deleted: entries of the log that give the files other deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.sinks.lake.delta import vectors
from penstock.sinks.lake.delta.commits import Action
from penstock.sinks.lake.delta.files import removed, with_vector
from penstock.sinks.lake.delta.live import File
from penstock.sinks.lake.lookup import Found
from penstock.store.files import Folder


@dataclass(frozen=True)
class Changes:
    """The changes that mark rows as deleted. `actions`: entries of the log. `changed`: the files, as these
    entries describe them. `removed`: the locations of those whose rows are all gone. `written`: the locations
    of new files with vectors."""

    actions: Sequence[Action] = ()
    changed: Sequence[File] = ()
    removed: Sequence[str] = ()
    written: Sequence[str] = ()


def mark_rows(folder: Folder, files: Mapping[str, File], found: Sequence[Found]) -> Changes:
    """Marks rows as deleted. `found`: all deleted rows, including those that are marked already. `files`: by
    location."""
    marked = [one for one in found if one[2]]
    gone = [location for location, _, count in marked if count == files[location].rows]
    partly = [one for one in marked if one[2] != files[one[0]].rows]
    placed = vectors.write(folder, [(bitmap, count) for _, bitmap, count in partly]) if partly else []
    actions = [removed(files[location].entry) for location in gone]
    changed = []
    for (location, _, _), vector in zip(partly, placed, strict=True):
        file = files[location]
        new = with_vector(file.entry, file.stats, vector)
        actions += [removed(file.entry), new]
        changed.append(File.of(new["add"], folder))
    return Changes(actions, changed, gone, [vectors.location(folder, one) for one in placed[:1]])
