"""Where an Iceberg table says which of our commits it holds: in a property of each snapshot, and in
properties of the table (`sink.py` argues why both)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.sinks.base import Commit

COMMIT = "penstock.commit"

KNOWN_MAX = 100_000
"""Snapshots remembered: 20 MB."""


class Commits:
    """Reads and writes what tables of one pipeline say. Snapshots never change: each is looked at once."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._known: dict[int, tuple[Commit | None, int | None]] = {}

    def last(self, target: Any, source: str) -> Commit | None:
        """The newest commit of a source table; empty: of the one source the target has."""
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
        """As properties of the table: the commit, and others (None: it goes)."""
        change = updater.updateProperties()
        if commit is not None:
            snapshot = target.currentSnapshot()
            at = 0 if snapshot is None else snapshot.snapshotId()
            change.set(property_of(commit.source), f"{commit}@{at}")
        for name, value in (properties or {}).items():
            if value is not None:
                change.set(name, value)
            else:
                change.remove(name)
        change.commit()


def property_of(source: str) -> str:
    return f"{COMMIT}.{source}" if source else COMMIT


def last_commit(recorded: str | None, ancestry: list[tuple[int, str | None]]) -> Commit | None:
    """The newest commit in a table, from its property (`COMMIT@SNAPSHOT`) and its snapshots, newest first.

    `ancestry` ends with the first snapshot that carries a commit of this pipeline, or with `expired` where
    older ones have been removed, or with the first snapshot of the table. The property holds while its
    snapshot has not been rolled back: that is, while it is among these, or cannot be (ancestry was cut, or it
    belongs to no snapshot).
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
