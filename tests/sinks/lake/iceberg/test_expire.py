"""Old snapshots go at once, and their files only when no query that has begun can need them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few, iceberg, target

from penstock.sinks.lake.iceberg import maintenance
from penstock.sinks.lake.iceberg.maintenance import MIB
from penstock.sinks.lake.iceberg.pack_files import Tier

Make = Callable[..., Place]

FEW = {"snapshots_max": 1, "snapshots_keep": 1, "files_age": "10m"}


def parquet(it: Place) -> set[Path]:
    return set((iceberg(it)._path(it.table) / "data").rglob("*.parquet"))


def lists(it: Place) -> list[Path]:
    return sorted((iceberg(it)._path(it.table) / "expired").glob("*.json"))


@pytest.fixture
def kept(place: Make, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A table of four small files."""
    monkeypatch.setattr(maintenance, "TIERS", (Tier(MIB, 4 * MIB, 2),))
    it = place("iceberg", config=FEW).create()
    for epoch in range(1, 5):
        it.sink.merge(it.table, few(it, (epoch, "a", False, epoch)), it.key, it.commit(epoch))
    return it


def replaced(it: Place) -> None:
    """They are, and the snapshots that replaced them are forgotten as well: that is when Iceberg removes."""
    for epoch in range(5, 7):
        iceberg(it)._maintenance.maintain(it.table)
        it.sink.merge(it.table, few(it, (1, "b", False, epoch)), it.key, it.commit(epoch))
    iceberg(it)._maintenance.maintain(it.table)


NOW = [(1, "b", 6), *[(n, "a", n) for n in range(2, 5)]]


def test_a_query_that_has_begun_goes_on(kept: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before, known = kept.rows(), parquet(kept)
    assert len(known) == 4
    name = iceberg(kept).name(kept.table)
    query = kept.spark.read.option("file-open-cost", 128 * MIB).table(name)
    assert query.rdd.getNumPartitions() == 4
    snapshot = target(kept).currentSnapshot().snapshotId()
    rows = query.toLocalIterator()
    found = [next(rows)]
    replaced(kept)
    assert snapshot not in [one.snapshotId() for one in target(kept).snapshots()], "it is forgotten"
    assert known < parquet(kept)
    found += rows
    assert sorted((row["id"], row["name"], row["_sequence"]) for row in found) == before

    now = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: now)
    iceberg(kept)._maintenance.maintain(kept.table)
    assert not known & parquet(kept)
    assert lists(kept) == []
    assert kept.rows() == NOW


def test_what_is_cut_off_is_done_again(kept: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    known = parquet(kept)
    replaced(kept)
    folder = iceberg(kept)._path(kept.table) / "expired"
    (folder / "notes.txt").write_text("somebody else's")
    named = [name for one in lists(kept) for name in json.loads(one.read_text())]
    assert len(named) == len(set(named)) > len(known)
    assert {path.name for path in known} < {Path(name).name for name in named}
    known.pop().unlink()
    (folder / "0-cut.json").write_text('["file:/nowh')
    now = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: now)
    iceberg(kept)._maintenance.maintain(kept.table)
    assert not known & parquet(kept) and lists(kept) == []
    assert (folder / "notes.txt").exists()
    assert kept.rows() == NOW


def test_where_files_cannot_be_listed_they_are_removed_at_once(
    kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sinks.lake.iceberg.files.Classes.lists_files", lambda self, io: False)
    known = parquet(kept)
    replaced(kept)
    assert not known & parquet(kept)
    assert kept.rows() == NOW


def puffins(it: Place) -> set[Path]:
    return set((iceberg(it)._path(it.table) / "data").rglob("*.puffin"))


@pytest.mark.parametrize("lists_files", [True, False])
def test_a_file_of_vectors_stays_as_long_as_one_of_them_is_needed(
    place: Make, monkeypatch: pytest.MonkeyPatch, lists_files: bool
) -> None:
    monkeypatch.setattr("penstock.sinks.lake.iceberg.files.Classes.lists_files", lambda self, io: lists_files)
    monkeypatch.setattr(maintenance, "WORN_TOTAL", 2)  # no file is written anew because of its deleted rows
    it = place("iceberg", config={**FEW, "files_age": "0s"}).create()
    for epoch, ids in ((1, (1, 2)), (2, (3, 4))):
        it.sink.merge(it.table, few(it, *[(id, "a", False, epoch) for id in ids]), it.key, it.commit(epoch))
    iceberg(it)._maintenance.maintain(it.table)
    it.sink.merge(it.table, few(it, (1, "b", False, 3), (3, "b", False, 3)), it.key, it.commit(3))
    iceberg(it)._maintenance.maintain(it.table)
    (both,) = puffins(it)  # vectors of both files
    for epoch in range(4, 8):  # those of the first file are replaced, and that is forgotten
        it.sink.merge(it.table, few(it, (2, "b", False, epoch)), it.key, it.commit(epoch))
        iceberg(it)._maintenance.maintain(it.table)
    assert both.exists()
    assert it.rows() == [(1, "b", 3), (2, "b", 7), (3, "b", 3), (4, "a", 2)]
    for epoch in range(8, 12):
        it.sink.merge(it.table, few(it, (4, "b", False, epoch)), it.key, it.commit(epoch))
        iceberg(it)._maintenance.maintain(it.table)
    assert not both.exists()
    assert it.rows() == [(1, "b", 3), (2, "b", 7), (3, "b", 3), (4, "b", 11)]
