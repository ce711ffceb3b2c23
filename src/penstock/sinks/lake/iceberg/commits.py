"""Finds and records our commits in an Iceberg table: in a property of each snapshot, and in properties of the
table. `format.py` says why both are needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.sinks.base import COMPLETE_UNTIL, Commit
from penstock.sinks.lake.iceberg.branch import OnBranch
from penstock.sinks.lake.iceberg.catalog import may_remove_files
from penstock.sinks.lake.recorded_commit import COMMIT, property_of

KNOWN_MAX = 100_000
"""Number of snapshots whose commits are kept in memory: 20 MB."""


class Commits:
    """Commits of one pipeline. Snapshots never change, so each is read once."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._known: dict[int, tuple[Commit | None, int | None]] = {}

    def last(self, target: Any, source: str) -> Commit | None:
        """The newest commit with this `Commit.source`."""
        ancestry: list[tuple[int, str | None]] = []
        snapshot = target.currentSnapshot()
        at = None if snapshot is None else snapshot.snapshotId()
        while at is not None:
            known = self._known.get(at) or self._look(target.snapshot(at))
            if known is None:
                ancestry.append((at, "expired"))
                break
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[at] = known
            commit, parent = known
            ours = commit is not None and commit.source == source
            ancestry.append((at, str(commit) if ours else None))
            if ours:
                break
            at = parent
        else:
            if ancestry and not may_remove_files(target):
                # The catalog itself has the older snapshots. What it rolls back, it rolls back with the
                # table's properties.
                ancestry.append((0, "expired"))
        return last_commit(target.properties().get(property_of(source)), ancestry)

    def _look(self, snapshot: Any) -> tuple[Commit | None, int | None] | None:
        if snapshot is None:
            return None
        value = snapshot.summary().get(COMMIT)
        commit = Commit.parse(value) if value is not None else None
        return (
            commit if commit is not None and commit.pipeline == self._pipeline else None
        ), snapshot.parentId()

    @staticmethod
    def record(
        updater: Any, target: Any, commit: Commit | None, properties: Mapping[str, str | None] | None = None
    ) -> None:
        """Sets properties of the table: the commit, and others (None: removes one)."""
        change = updater.updateProperties()
        if commit is not None:
            snapshot = target.currentSnapshot()
            at = 0 if snapshot is None else snapshot.snapshotId()
            change.set(property_of(commit.source), f"{commit}@{at}")
            # A property is one of the whole table, also of branches and of what other shards have.
            if commit.complete_until and not commit.source and not isinstance(target, OnBranch):
                change.set(COMPLETE_UNTIL, commit.complete_until)
            elif commit.complete_until == "" and target.properties().get(COMPLETE_UNTIL) is not None:
                change.remove(COMPLETE_UNTIL)
        for name, value in (properties or {}).items():
            if value is not None:
                change.set(name, value)
            else:
                change.remove(name)
        change.commit()


def last_commit(recorded: str | None, ancestry: list[tuple[int, str | None]]) -> Commit | None:
    """The newest commit in a table, from its property (`COMMIT@SNAPSHOT`) and its snapshots.

    `ancestry`: snapshots with their commits (None: none of this pipeline), newest first. It ends with the
    first that has a commit of this pipeline, or with `expired` if older snapshots have been removed, or with
    the table's first snapshot. The property counts unless its snapshot has been rolled back: if the snapshot
    is among these, or may be an older one that has been removed, or if the property names no snapshot.
    """
    found = next((Commit.parse(value) for _, value in ancestry if value not in (None, "expired")), None)
    if recorded is None:
        return found
    text_, _, at = recorded.rpartition("@")
    cut = bool(ancestry) and ancestry[-1][1] == "expired"
    standing = int(at) == 0 or cut or any(int(at) == snapshot for snapshot, _ in ancestry)
    if not standing:
        return found
    property_commit = Commit.parse(text_)
    return property_commit if found is None else max(found, property_commit)
