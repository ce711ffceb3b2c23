"""Where the last commit of a table is found, if its snapshots do not tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.sinks.base import Commit
from penstock.sinks.lake.iceberg.commits import Commits
from penstock.sinks.lake.recorded_commit import COMMIT

PIPELINE = "c1f6a1b5-0000-4000-8000-000000000000"
OURS = Commit(PIPELINE, 7)


@dataclass
class Snapshot:
    """What is asked of Iceberg's class of this name."""

    number: int
    properties: dict[str, str] = field(default_factory=dict)

    def snapshotId(self) -> int:
        return self.number

    def parentId(self) -> int | None:
        return None

    def summary(self) -> dict[str, str]:
        return self.properties


@dataclass
class Table:
    """A table with one snapshot: the first, or the only one that its catalog shows."""

    only: Snapshot
    own: dict[str, str]

    def currentSnapshot(self) -> Snapshot:
        return self.only

    def snapshot(self, number: int) -> Snapshot | None:
        return self.only if number == self.only.number else None

    def properties(self) -> dict[str, str]:
        return self.own


def test_a_commit_whose_snapshot_is_gone_was_rolled_back() -> None:
    table = Table(Snapshot(2), {COMMIT: f"{OURS}@1"})
    assert Commits(PIPELINE).last(table, "") is None


def test_it_still_counts_in_a_catalog_that_keeps_older_snapshots_itself() -> None:
    table = Table(Snapshot(2), {COMMIT: f"{OURS}@1", "gc.enabled": "false"})
    assert Commits(PIPELINE).last(table, "") == OURS


def test_a_commit_in_the_snapshot_is_found_in_every_catalog() -> None:
    for more in ({}, {"gc.enabled": "false"}):
        table = Table(Snapshot(2, {COMMIT: str(OURS)}), {COMMIT: f"{OURS}@2", **more})
        assert Commits(PIPELINE).last(table, "") == OURS
