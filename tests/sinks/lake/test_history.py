"""`history: scd2`: targets that keep versions. The judge is a history that Python keeps, change by change."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import SEEDS, Place, both, column, iceberg_first

from penstock.errors import TableError
from penstock.model.history import History
from penstock.model.schema import Column, TableSchema
from penstock.sinks.base import ChangeSink, Ours, TableSink, VersionSink
from penstock.sinks.lake.history import HistorySink
from penstock.sinks.rows import Newer, Rows

Make = Callable[..., Place]
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
KEY = ("id", "part")
ARROW = pa.schema([("id", pa.int64()), ("part", pa.string()), ("name", pa.string())])
Version = tuple[Any, ...]
"""id, part, name, sequence, begin, end (None: current)."""


def at(sequence: int) -> datetime:
    """The commit time: three changes each have the same one."""
    return BEGIN + timedelta(seconds=sequence // 3)


class Kept:
    """A target with history, and what should be in it. `directly`: a Spark job that needs the DataFrame of
    changes fails."""

    def __init__(self, it: Place, *, directly: bool = False) -> None:
        self.directly = directly
        self.it = it
        self.sink = HistorySink(it.sink, History({"shop.*": "scd2"}))
        self.expected: list[Version] = []
        self.sequence = 0
        self.epoch = 0
        self.changes: list[Version] = []

    def create(self) -> Kept:
        columns = tuple(Column(name, "text") for name in self.it.arrow.names)
        self.sink.create(TableSchema(self.it.table, columns, KEY), self.it.arrow)
        return self

    def current(self) -> dict[tuple[Any, ...], Version]:
        return {one[:2]: one for one in self.expected if one[5] is None}

    def change(self, kind: str, *row: Any) -> None:
        self.sequence += 1
        self.changes.append((*row, kind, self.sequence, at(self.sequence)))

    def insert(self, *row: Any) -> None:
        self.change("insert", *row)
        self.expected.append((*row, self.sequence, at(self.sequence), None))

    def end(self, row: tuple[Any, ...], when: datetime) -> None:
        old = self.current()[row[:2]]
        self.expected[self.expected.index(old)] = (*old[:5], when)

    def delete(self, *row: Any) -> None:
        self.change("delete", *row)
        self.end(row, at(self.sequence))

    def update(self, row: tuple[Any, ...], new: tuple[Any, ...]) -> None:
        self.change("update_preimage", *row)
        self.end(row, at(self.sequence))
        self.change("update_postimage", *new)
        self.expected.append((*new, self.sequence, at(self.sequence), None))

    def rows(self, changes: list[Version]) -> Rows:
        from pyspark.sql.types import StructField, StructType

        from penstock.sinks.spark_sql import spark_type

        own = [("_change_type", pa.string()), ("_sequence", pa.int64()),
               ("_commit_timestamp", pa.timestamp("us", "UTC"))]  # fmt: skip
        fields = [*self.it.arrow, *[pa.field(*one) for one in own]]
        if self.directly:
            arrays = [pa.array([one[place] for one in changes], field.type)
                      for place, field in enumerate(fields)]  # fmt: skip
            batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
            return Rows(_never, Newer(driver_side=lambda: iter([batch])))
        struct = StructType([StructField(one.name, spark_type(one)) for one in fields])
        return Rows(self.it.spark.createDataFrame(changes, struct))

    def write(self) -> bool:
        self.epoch += 1
        changes, self.changes = self.changes, []
        random.Random(self.epoch).shuffle(changes)  # tasks make rows in any order
        self.written = self.rows(changes)
        return self.repeat()

    def repeat(self) -> bool:
        return self.sink.write_versions(self.it.table, self.written, KEY, self.it.commit(self.epoch))

    def found(self) -> list[Version]:
        frame = self.sink.read_whole(self.it.table)
        chosen = frame.select("id", "part", "name", "_sequence", "_valid_from", "_valid_to", "_is_current")
        found = []
        for row in chosen.collect():
            assert (row["_valid_to"] is None) == row["_is_current"]
            times = [None if time is None else time.astimezone(timezone.utc) for time in row[4:6]]
            found.append((*row[:4], *times))
        return sorted(found, key=str)

    def check(self) -> None:
        assert self.found() == sorted(self.expected, key=str)
        now = sorted(tuple(row)[:3] for row in self.sink.read(self.it.table).collect())
        assert now == sorted(one[:3] for one in self.expected if one[5] is None)


def kept(place: Make, kind: str = "iceberg", *, directly: bool = False, **options: Any) -> Kept:
    return Kept(place(kind, arrow=ARROW, **options), directly=directly).create()


def _never() -> Any:
    raise AssertionError("a Spark job for this")


def at_random(it: Kept, chance: random.Random) -> None:
    """Changes of an epoch."""
    keys = [(number, part) for number in range(4) for part in "ab"]
    for _ in range(chance.randrange(1, 25)):
        key, name = chance.choice(keys), chance.choice(["x", "y", None])
        known = it.current()
        if key not in known:
            it.insert(*key, name)
        elif chance.random() < 0.3:
            it.delete(*known[key][:3])
        else:
            moved = chance.choice(keys)
            new = moved if moved not in known and chance.random() < 0.5 else key
            it.update(known[key][:3], (*new, name))


@iceberg_first
@pytest.mark.parametrize("seed", SEEDS)
def test_history_is_that_of_all_changes_in_their_order(place: Make, kind: str, seed: int) -> None:
    it, chance = kept(place, kind), random.Random(seed)
    assert isinstance(it.sink, VersionSink) and isinstance(it.sink, TableSink)
    assert not isinstance(it.sink, ChangeSink)
    for _ in range(4):
        at_random(it, chance)
        assert it.write()
        it.check()
        assert not it.repeat()
    it.check()


@pytest.mark.slow_for("0-delta")
@both
@pytest.mark.parametrize("seed", SEEDS)
def test_small_epochs_need_no_spark_job(place: Make, kind: str, seed: int) -> None:
    it, chance = kept(place, kind, directly=True), random.Random(seed)
    for epoch in range(6):
        it.directly = epoch != 3  # a MERGE in between
        at_random(it, chance)
        assert it.write()
        it.check()
        assert not it.repeat()
        if epoch == 4:
            it.sink.compact(it.it.table)
            it.check()


def test_partitioned_versions_need_no_spark_job(place: Make) -> None:
    config = {"tables": [{"match": "*.*", "partition_by": ["part", "bucket(4, id)"]}]}
    it, chance = kept(place, directly=True, config=config), random.Random(1)
    for _ in range(3):
        at_random(it, chance)
        assert it.write()
        it.check()


@both
def test_a_version_keeps_what_the_source_lacks(place: Make, kind: str) -> None:
    """Somebody has changed the target's row. Its values stay, and not those that the change says it had."""
    it = kept(place, kind, directly=True)
    it.insert(1, "a", "x")
    it.insert(2, "a", "x")
    it.write()
    it.it.spark.sql(f"UPDATE {it.it.sink.name(it.it.table)} SET name = 'mine' WHERE id = 1")
    it.expected[0] = (1, "a", "mine", *it.expected[0][3:])
    it.change("update_preimage", 1, "a", "x")
    it.end((1, "a", "mine"), at(it.sequence))
    it.change("update_postimage", 1, "a", "y")
    it.expected.append((1, "a", "y", it.sequence, at(it.sequence), None))
    assert it.write()
    it.check()


def test_changes_that_are_there_already_change_nothing_in_another_epoch(place: Make) -> None:
    it = kept(place)
    it.insert(1, "a", "x")
    it.insert(2, "a", "x")
    it.update((1, "a", "x"), (1, "a", "y"))
    it.delete(2, "a", "x")
    it.write()
    before = it.written
    it.insert(2, "a", "z")
    it.write()
    it.epoch, it.written = it.epoch + 1, before
    assert it.repeat()
    it.check()


def test_truncate_ends_all_versions(place: Make) -> None:
    it = kept(place)
    it.insert(1, "a", "x")
    it.insert(2, "a", "x")
    it.write()
    us = int((BEGIN + timedelta(hours=1)).timestamp() * 1_000_000)
    assert it.sink.truncate(it.it.table, it.it.commit(2), sequence=50, timestamp_us=us)
    assert not it.sink.truncate(it.it.table, it.it.commit(2), sequence=50, timestamp_us=us)
    it.expected = [(*one[:5], BEGIN + timedelta(hours=1)) for one in it.expected]
    it.check()


@pytest.mark.parametrize("directly", [True, False])
def test_columns_may_have_any_name(place: Make, directly: bool) -> None:
    names = ["_at", "_begins", "_read", "_newest", "_until", "_next", "_number", "_k0", "e_k0"]
    wide = pa.schema([*ARROW, *[(name, pa.string()) for name in names]])
    it = Kept(place("iceberg", arrow=wide), directly=directly).create()
    first, second = (tuple(f"{name}{n}" for name in names) for n in (1, 2))
    it.changes.append((1, "a", "x", *first, "insert", 1, BEGIN))
    it.write()
    it.changes.append((1, "a", "x", *first, "update_preimage", 2, BEGIN))
    it.changes.append((1, "a", "x", *second, "update_postimage", 2, BEGIN))
    it.write()
    found = it.sink.read_whole(it.it.table).orderBy("_sequence").select(*names).collect()
    assert [tuple(row) for row in found] == [first, second]


@pytest.mark.parametrize("directly", [True, False])
def test_a_version_never_begins_before_the_one_that_it_follows(place: Make, directly: bool) -> None:
    """If the server's clock is set back, or if rows are read while older changes are still in the log."""
    it = kept(place, directly=directly)
    late, early = BEGIN + timedelta(hours=1), BEGIN

    def update(old: str, new: str, sequence: int, when: datetime) -> None:
        it.changes.append((1, "a", old, "update_preimage", sequence, when))
        it.changes.append((1, "a", new, "update_postimage", sequence, when))

    it.changes.append((1, "a", "x", "insert", 1, late))
    it.changes.append((2, "b", "x", "insert", 2, early))
    it.write()
    update("x", "y", 3, early)
    update("y", "z", 4, late + timedelta(hours=1))
    update("z", "u", 5, late)
    update("u", "v", 6, early)
    it.changes.append((2, "b", "x", "delete", 7, early + timedelta(seconds=1)))
    it.write()
    later = late + timedelta(hours=1)
    it.expected = [
        (1, "a", "x", 1, late, late), (1, "a", "y", 3, late, later), (1, "a", "z", 4, later, later),
        (1, "a", "u", 5, later, later), (1, "a", "v", 6, later, None),
        (2, "b", "x", 2, early, early + timedelta(seconds=1)),
    ]  # fmt: skip
    it.check()
    us = int(early.timestamp() * 1_000_000)
    assert it.sink.truncate(it.it.table, it.it.commit(3), sequence=50, timestamp_us=us)
    it.expected[4] = (*it.expected[4][:5], later)
    it.check()


def test_rows_that_are_read_again_begin_a_version_only_if_they_differ(place: Make) -> None:
    it = kept(place)
    it.insert(1, "a", "same")
    it.insert(2, "a", "other")
    it.insert(3, "a", "gone")
    it.insert(5, "a", None)
    it.write()
    reads = [(1, "a", "same"), (2, "a", "new"), (4, "a", "missed"), (5, "a", None)]
    it.written, it.epoch = it.rows([(*row, "read", 90, None) for row in reads]), 2
    assert it.repeat() and not it.repeat()
    assert it.sink.delete_older(it.it.table, 90, it.it.commit(3))
    found = {(one[0], one[2]): (one[3], one[5] is None) for one in it.found()}
    assert found == {
        (1, "same"): (90, True), (2, "other"): (2, False), (2, "new"): (90, True), (3, "gone"): (3, False),
        (4, "missed"): (90, True), (5, None): (90, True),
    }  # fmt: skip
    assert all(one[4] is not None for one in it.found())


def test_columns_follow_the_source_and_those_of_history_stay(place: Make) -> None:
    it = kept(place)
    it.insert(1, "a", "x")
    it.write()
    changed = [
        column("id", pa.int64(), "id"), column("part", pa.string(), "part"),
        column("label", pa.string(), "name"), column("n", pa.int32(), default="7"),
    ]  # fmt: skip
    assert it.sink.evolve(it.it.table, changed, it.it.commit(2), narrowing="keep")
    it.it.arrow = pa.schema([one.field for one in changed])
    target = it.sink.open(it.it.table)
    assert isinstance(target, Ours) and target.columns == ("id", "part", "label", "n")
    it.epoch = 2
    it.change("update_preimage", 1, "a", "x", 7)
    it.change("update_postimage", 1, "a", "y", 8)
    assert it.write()
    rows = sorted(tuple(row)[2:4] for row in it.sink.read_whole(it.it.table).collect())
    assert rows == [("x", 7), ("y", 8)]


def test_a_column_with_a_name_of_the_history_is_refused(place: Make) -> None:
    it = place("iceberg", arrow=pa.schema([("id", pa.int64()), ("_Valid_To", pa.string())]))
    columns = (Column("id", "int"), Column("_Valid_To", "text"))
    with pytest.raises(TableError, match="_Valid_To"):
        HistorySink(it.sink, History({"shop.*": "scd2"})).create(
            TableSchema(it.table, columns, ("id",)), it.arrow
        )


def test_other_tables_are_kept_as_they_are(place: Make) -> None:
    it = place("iceberg")
    sink = HistorySink(it.sink, History({"shop.other": "scd2"}))
    columns = tuple(Column(name, "text") for name in it.arrow.names)
    sink.create(TableSchema(it.table, columns, ("id",)), it.arrow)
    sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    sink.merge(it.table, it.latest((1, "b", False, 2)), ("id",), it.commit(2))
    assert it.rows() == [(1, "b", 2)]
    target = sink.open(it.table)
    assert isinstance(target, Ours) and target.columns == ("id", "name")
