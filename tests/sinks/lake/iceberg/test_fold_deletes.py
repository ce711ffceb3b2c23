"""Equality deletes of other programs, and of earlier versions of Penstock, become deletion vectors. Spark's
own reading judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from tests.sinks.conftest import Place, column
from tests.sinks.lake.iceberg.test_small_commit import (
    KEYS,
    few,
    files,
    folded,
    iceberg,
    replaced_by_keys,
    summary,
    target,
)

from penstock.model.schema import TableId
from penstock.sinks.lake.iceberg.maintenance import Maintenance, rewrite
from penstock.sinks.lake.iceberg.small_commit import SMALL
from penstock.sinks.lake.index.tables import TableKeys
from penstock.sinks.lake.lookup import Unsearchable

Make = Callable[..., Place]


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_are_found(place: Make, kind: str) -> None:
    arrow, values = KEYS[kind]
    it = place("iceberg", arrow=pa.schema([("id", arrow), ("name", pa.string())])).create()
    it.sink.append(it.table, it.latest(*[(value, "old", False, 1) for value in values]), it.commit(1))
    replaced_by_keys(it, *[(value, "new", n == 0, 5) for n, value in enumerate(values)])
    assert [row[1:] for row in it.rows()] == [("new", 5)] * 3, "readers find them"
    assert folded(it)
    assert [row[1:] for row in it.rows()] == [("new", 5)] * 3
    assert summary(it)["total-equality-deletes"] == "0"


def test_a_small_commit_converts_them_first(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(4)]), it.commit(1))
    replaced_by_keys(it, (0, "b", False, 2), (1, None, True, 2))
    it.sink.merge(it.table, few(it, (0, "c", False, 3), (1, "c", False, 3)), it.key, it.commit(2))
    assert it.rows() == [(0, "c", 3), (1, "c", 3), (2, "a", 1), (3, "a", 1)]
    found = summary(it)
    assert found["total-equality-deletes"] == "0" and found[SMALL] == "true"


def test_a_small_commit_does_not_wait_for_maintenance_that_waits_for_it(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance excludes other work on the table, and then holds its index for the commit."""
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest((0, "a", False, 1), (1, "a", False, 1)), it.commit(1))
    it.sink.merge(it.table, few(it, (1, "b", False, 2)), it.key, it.commit(2))
    index = iceberg(it)._indexes.known(it.table)
    assert index is not None
    convert, held = Maintenance.fold, list[bool]()

    def fold_(self: Maintenance, table: TableId) -> None:
        held.append(index.changing.locked())
        convert(self, table)

    monkeypatch.setattr(Maintenance, "fold", fold_)
    replaced_by_keys(it, (0, "c", False, 3))
    it.sink.merge(it.table, few(it, (0, "d", False, 4)), it.key, it.commit(3))
    replace_once = [lambda: replaced_by_keys(it, (1, "e", False, 5))]
    look_up = TableKeys.rows_of

    def rows_of(self: TableKeys[Any], *args: Any) -> Any:
        found = look_up(self, *args)
        while replace_once:
            replace_once.pop()()
        return found

    monkeypatch.setattr(TableKeys, "rows_of", rows_of)
    it.sink.merge(it.table, few(it, (0, "f", False, 6), (1, "f", False, 6)), it.key, it.commit(4))
    assert it.rows() == [(0, "f", 6), (1, "f", 6)]
    assert held and not any(held)


def test_a_key_with_null_makes_the_files_be_written_again(place: Make) -> None:
    """As the specification of Iceberg has it, it deletes the rows that have NULL there."""
    it = place("iceberg", key=("name",))
    it.create()
    it.sink.append(it.table, it.latest((1, None, False, 1), (2, "b", False, 1)), it.commit(1))
    replaced_by_keys(it, (9, None, True, 5))
    assert it.rows() == [(2, "b", 1)]
    with pytest.raises(Unsearchable, match="NULL"):
        folded(it)
    iceberg(it)._maintenance.maintain(it.table)
    assert it.rows() == [(2, "b", 1)] and summary(it)["total-equality-deletes"] == "0"


def test_a_key_column_that_older_files_lack_makes_them_be_written_again(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest((1, "a", False, 1), (2, "a", False, 1)), it.commit(1))
    it.evolve(2, *[column(n, k, n) for n, k in (("id", pa.int64()), ("name", pa.string()))],
              column("part", pa.int64(), default="7"))  # fmt: skip
    it.key = ("id", "part")
    replaced_by_keys(it, (1, "b", 7, False, 5), (2, "c", 8, False, 6))
    expected = [(1, "b", 7, 5), (2, "a", 7, 1), (2, "c", 8, 6)]
    assert it.rows() == expected
    with pytest.raises(Unsearchable, match="field id"):
        folded(it)
    iceberg(it)._maintenance.maintain(it.table)
    assert it.rows() == expected and summary(it)["total-equality-deletes"] == "0"


def test_a_fold_leaves_vectors_that_later_folds_and_merges_build_on(place: Make) -> None:
    it = place("iceberg", key=("id", "name")).create()
    it.sink.append(it.table, it.latest(*[(n, "x", False, 1) for n in range(100)]), it.commit(1))
    for epoch, number in enumerate(range(0, 60, 10), start=2):
        rows = [(n, "x", True, epoch) for n in range(number, number + 5)]
        replaced_by_keys(it, *rows)
        if epoch % 2:
            assert folded(it)
    it.sink.merge(it.table, it.latest((99, "x", True, 50)), it.key, it.commit(20))
    replaced_by_keys(it, (98, "x", True, 51), (97, "y", True, 51))
    assert folded(it) and not folded(it), "nothing is left to do"
    gone = {n for start in range(0, 60, 10) for n in range(start, start + 5)} | {98, 99}
    assert it.rows() == sorted((n, "x", 1) for n in range(100) if n not in gone)
    assert summary(it)["total-equality-deletes"] == "0"


def test_small_commits_during_a_fold_stand(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(10)]), it.commit(1))
    replaced_by_keys(it, (1, "b", False, 5), (2, "b", False, 5))
    before = target(it)
    replaced_by_keys(it, (2, "c", False, 6), (3, "c", False, 6))
    assert folded(it, before), "it knows nothing of the third commit"
    expected = dict.fromkeys(range(10), ("a", 1)) | {1: ("b", 5), 2: ("c", 6), 3: ("c", 6)}
    assert it.rows() == sorted((n, *value) for n, value in expected.items())
    assert folded(it)
    assert it.rows() == sorted((n, *value) for n, value in expected.items())


def test_a_fold_that_met_another_writer_of_vectors_is_given_up(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(10)]), it.commit(1))
    replaced_by_keys(it, (1, "b", False, 5))
    before = target(it)
    it.sink.merge(it.table, it.latest((4, "d", False, 7)), it.key, it.commit(3))
    present = files(it)
    with pytest.raises(Py4JJavaError):
        folded(it, before)
    assert files(it) == present
    expected = dict.fromkeys(range(10), ("a", 1)) | {1: ("b", 5), 4: ("d", 7)}
    assert it.rows() == sorted((n, *value) for n, value in expected.items())


def test_a_fold_that_met_files_being_put_together_is_given_up(place: Make) -> None:
    """The new file is as old as the snapshot it was made from: without the deletes its rows would be back."""
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(10)]), it.commit(1))
    before = target(it)
    replaced_by_keys(it, (1, "b", False, 5))
    with_deletes = target(it)
    rewrite(it.spark, before, {"rewrite-all": "true"})
    assert it.rows() == sorted([*[(n, "a", 1) for n in range(10) if n != 1], (1, "b", 5)])
    with pytest.raises(Py4JJavaError, match="missing data files"):
        folded(it, with_deletes)
    assert it.rows() == sorted([*[(n, "a", 1) for n in range(10) if n != 1], (1, "b", 5)])
    assert folded(it)
    assert it.rows() == sorted([*[(n, "a", 1) for n in range(10) if n != 1], (1, "b", 5)])


@pytest.mark.parametrize("write", ["merge", "delete", "evolve"])
def test_spark_meets_no_equality_deletes_when_it_writes(place: Make, write: str) -> None:
    """It takes minutes where there are many."""
    it = place("iceberg").create()
    for epoch in range(1, 4):
        replaced_by_keys(it, (epoch, "7", False, epoch))
    number = target(it).currentSnapshot().snapshotId()
    if write == "merge":
        it.sink.merge(it.table, it.latest((2, "b", False, 4)), it.key, it.commit(4))
    elif write == "delete":
        it.sink.delete(it.table, "id = 3", it.commit(4))
    else:
        it.evolve(4, column("id", pa.int64(), "id"), column("name", pa.int64(), "name"))
    before_write = [one for one in target(it).snapshots() if one.parentId() == number]
    assert [one.summary().get("total-equality-deletes") for one in before_write] == ["0"]
