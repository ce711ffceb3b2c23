"""`history: changelog`: targets whose rows are changes. The judge is a list that Python keeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import NOW, SEEDS, Place, iceberg_first

from penstock.model.history import History
from penstock.model.schema import Column, TableSchema
from penstock.sinks.base import EvolvedColumn, Ours
from penstock.sinks.lake.history import HistorySink
from penstock.sinks.rows import AnyOrder, Newer, Rows

Make = Callable[..., Place]
ARROW = pa.schema([("id", pa.int64()), ("part", pa.string()), ("name", pa.string())])
KEY = ("id", "part")
LAYOUT = pa.schema([
    *ARROW, ("_change_type", pa.string()), ("_sequence", pa.int64()),
    ("_commit_timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip
Change = tuple[Any, ...]
"""id, part, name, type, sequence, time."""


class Kept:
    """A target that keeps changes, and what should be in it."""

    def __init__(self, it: Place) -> None:
        self.it = it
        self.sink = HistorySink(it.sink, History({"shop.*": "changelog"}))
        self.expected: list[Change] = []
        self.now: dict[Any, Change] = {}
        self.sequence = self.epoch = 0
        columns = tuple(Column(name, "text") for name in ARROW.names)
        self.sink.create(TableSchema(it.table, columns, KEY), ARROW)

    def rows(self, changes: list[Change], *, newer: bool, small: bool = False) -> Rows:
        columns = zip(*changes, strict=True)
        table = pa.table(
            [pa.array(values, one.type) for values, one in zip(columns, LAYOUT, strict=True)], schema=LAYOUT
        )

        def batches() -> Iterator[pa.RecordBatch]:
            yield from table.to_batches()

        kind = Newer(batches if small else None) if newer else AnyOrder()
        return Rows(self.it.spark.createDataFrame(table), kind)

    def write(self, changes: list[Change], *, newer: bool = True, small: bool = False) -> bool:
        self.epoch += 1
        rows = self.rows(changes, newer=newer, small=small)
        done = self.sink.write_versions(self.it.table, rows, KEY, self.it.commit(self.epoch))
        assert not self.sink.write_versions(self.it.table, rows, KEY, self.it.commit(self.epoch))
        return done

    def change(self, chance: random.Random) -> list[Change]:
        """Some changes, as the log has them."""
        made: list[Change] = []
        for _ in range(chance.randrange(1, 12)):
            self.sequence += 10
            at = NOW + timedelta(seconds=self.sequence)
            key, name = (chance.randrange(4), chance.choice("ab")), chance.choice(["x", "y", None])
            old, own = self.now.get(key), (self.sequence, at)
            if old is None:
                made.append((*key, name, "insert", *own))
                self.now[key] = (*key, name)
            elif chance.random() < 0.3:
                made.append((*old, "delete", *own))
                del self.now[key]
            else:
                other = (chance.randrange(4), "a")
                new = other if other not in self.now and chance.random() < 0.5 else key
                made += [(*old, "update_preimage", *own), (*new, name, "update_postimage", *own)]
                del self.now[key]
                self.now[new] = (*new, name)
        return made

    def check(self) -> None:
        frame = self.sink.read_whole(self.it.table).select(LAYOUT.names)
        found = pa.Table.from_batches(frame.toArrow().to_batches()).cast(LAYOUT).to_pylist()
        assert sorted((tuple(one.values()) for one in found), key=str) == sorted(self.expected, key=str)
        rows = self.sink.read(self.it.table).select(ARROW.names).collect()
        assert sorted((tuple(one) for one in rows), key=str) == sorted(self.now.values(), key=str)


@iceberg_first
@pytest.mark.parametrize("seed", SEEDS)
def test_every_change_is_there_once(place: Make, kind: str, seed: int) -> None:
    it, chance = Kept(place(kind, arrow=ARROW)), random.Random(seed)
    for number in range(3):
        made = it.change(chance)
        it.expected += made
        assert it.write(made, small=number == 1)
    later = it.change(chance)
    assert it.write([*made, *later], newer=False)  # a table that catches up
    it.expected += later
    it.check()


def test_a_table_that_is_emptied_or_read_again_says_so(place: Make) -> None:
    it = Kept(place("iceberg", arrow=ARROW))
    table = it.it.table
    first = [(1, "a", "x", "insert", 10, NOW), (2, "a", "x", "insert", 20, NOW)]
    it.write(first)
    it.epoch += 1
    for done in (True, False):
        commit = it.it.commit(it.epoch)
        assert it.sink.truncate(table, commit, sequence=30, timestamp_us=1_000_000) is done
    emptied = (None, None, None, "truncate", 30, NOW.fromtimestamp(1, NOW.tzinfo))
    it.expected = [*first, emptied]
    it.check()
    then = [
        (1, "a", "y", "insert", 40, NOW),
        (3, "b", "y", "insert", 50, NOW),
        (4, "b", "y", "insert", 55, NOW),
    ]
    it.write(then)
    # Read again from 75 on: 3 has another name, 4 is gone, and 5 has come in the meantime.
    again = [(1, "a", "y", "read", 80, None), (3, "b", "z", "read", 80, None)]
    it.write([(5, "a", "n", "insert", 78, NOW)])
    it.write(again, newer=False)
    it.epoch += 1
    for done in (True, False):
        assert it.sink.delete_older(table, 75, it.it.commit(it.epoch)) is done
    it.expected += [*then, (5, "a", "n", "insert", 78, NOW), *again, (4, "b", "y", "delete", 75, None)]
    it.now = {1: (1, "a", "y"), 3: (3, "b", "z"), 5: (5, "a", "n")}
    it.check()


def test_columns_follow_the_source_and_the_target_is_a_plain_one_to_its_callers(place: Make) -> None:
    it = Kept(place("iceberg", arrow=ARROW))
    it.write([(1, "a", "x", "insert", 10, NOW)])
    target = it.sink.open(it.it.table)
    assert isinstance(target, Ours) and target.columns == ("id", "part", "name")
    it.epoch += 1
    columns = [
        EvolvedColumn(pa.field("number", pa.int64()), "id", key=True),
        EvolvedColumn(pa.field("name", pa.string()), "name"),
    ]
    assert it.sink.evolve(it.it.table, columns, it.it.commit(it.epoch), narrowing="keep")
    frame = it.sink.read_whole(it.it.table)
    assert [(one["number"], one["_change_type"], one["_sequence"]) for one in frame.collect()] == [
        (1, "insert", 10)
    ]
    assert [tuple(one) for one in it.sink.read(it.it.table).collect()] == [(1, "x", 10)]
