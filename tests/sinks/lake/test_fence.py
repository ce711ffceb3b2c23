"""Targets refuse an earlier driver: what it has begun before they were fenced, and what it begins later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from tests.sinks.conftest import Place, both, column

from penstock.errors import DriverReplaced
from penstock.sinks.base import Ours
from penstock.sinks.rows import Newer, Rows

Make = Callable[..., Place]
Write = Callable[[Place, Rows], Any]


def successor(it: Place) -> Place:
    """The driver that takes over."""
    other = replace(it)
    other.sink.begin(2)
    return other


def small(it: Place, *rows: tuple[Any, ...], meanwhile: Callable[[], None] = lambda: None) -> Rows:
    """Rows that the driver makes itself. `meanwhile` happens between its look at the target and its
    commit."""
    own = [pa.field("_penstock_deleted", pa.bool_()), pa.field("_sequence", pa.int64())]
    schema = pa.schema([*it.arrow, *own])
    arrays = [pa.array([row[place] for row in rows], field.type)
              for place, field in enumerate(schema)]  # fmt: skip

    def make() -> Any:
        meanwhile()
        return iter([pa.RecordBatch.from_arrays(arrays, schema=schema)])

    return Rows(it.latest(*rows).source, Newer(driver_side=make))


def by_tasks(it: Place, *rows: tuple[Any, ...], meanwhile: Callable[[], None] = lambda: None) -> Rows:
    """Rows that Spark's tasks write as files."""
    frame = it.latest(*rows).frame

    def run(consume: Any, schema: str) -> Any:
        meanwhile()
        return Rows(frame).through(consume, schema)

    return Rows(frame, Newer(), run)


WRITES: dict[str, tuple[Any, Write]] = {
    "append": (small, lambda it, rows: it.sink.append(it.table, rows, it.commit(2))),
    "merge": (small, lambda it, rows: it.sink.merge(it.table, rows, it.key, it.commit(2))),
    "append by tasks": (by_tasks, lambda it, rows: it.sink.append(it.table, rows, it.commit(2))),
    "merge by tasks": (by_tasks, lambda it, rows: it.sink.merge(it.table, rows, it.key, it.commit(2))),
}


@pytest.mark.slow_for("append-delta", "append by tasks-delta")
@both
@pytest.mark.parametrize("name", WRITES)
def test_a_commit_that_was_begun_before_is_refused(kind: str, name: str, place: Make) -> None:
    it = place(kind).create()
    rows, write = WRITES[name]
    it.sink.append(it.table, small(it, (1, "a", False, 1)), it.commit(1))
    other = successor(it)
    begun = rows(it, (2, "late", False, 5), meanwhile=lambda: other.sink.fence(it.table))
    with pytest.raises((Py4JJavaError, DriverReplaced)):
        write(it, begun)
    assert it.rows() == [(1, "a", 1)]
    with pytest.raises(DriverReplaced, match="generation 2"):  # the retry looks at the target again
        write(it, rows(it, (2, "late", False, 5)))
    assert write(other, rows(other, (2, "right", False, 6))), "the epoch is not recorded"
    assert other.rows() == [(1, "a", 1), (2, "right", 6)]


@both
def test_a_target_without_rows_is_fenced_too(kind: str, place: Make) -> None:
    it = place(kind).create()
    other = successor(it)
    begun = small(it, (2, "late", False, 5), meanwhile=lambda: other.sink.fence(it.table))
    with pytest.raises(Py4JJavaError):
        it.sink.append(it.table, begun, it.commit(1))
    assert it.rows() == [] and other.sink.append(it.table, small(it, (1, "b", False, 6)), it.commit(1))


@both
def test_an_earlier_driver_begins_nothing_any_more(kind: str, place: Make) -> None:
    it = place(kind).create()
    it.sink.append(it.table, small(it, (1, "a", False, 1)), it.commit(1))
    other = successor(it)
    other.sink.fence(it.table)
    calls: list[Callable[[], Any]] = [
        lambda: it.sink.truncate(it.table, it.commit(2), sequence=9),
        lambda: it.sink.delete_older(it.table, 9, it.commit(2)),
        lambda: it.evolve(2, column("id", pa.int64(), "id"), column("title", pa.string(), "name")),
    ]
    for call in calls:
        with pytest.raises(DriverReplaced):
            call()
    it.arrow = other.arrow
    assert other.rows() == [(1, "a", 1)]
    assert other.sink.truncate(it.table, it.commit(2), sequence=9) and other.rows() == []


@both
def test_fencing_changes_no_row_and_no_commit_and_is_done_once(kind: str, place: Make) -> None:
    it = place(kind).create()
    it.sink.append(it.table, small(it, (1, "a", False, 1)), it.commit(1))
    other = successor(it)
    other.sink.fence(it.table)
    version = other.sink.version(it.table)
    other.sink.fence(it.table)
    assert other.sink.version(it.table) == version
    found = other.sink.open(it.table)
    assert isinstance(found, Ours) and found.last_commit == it.commit(1) and other.rows() == [(1, "a", 1)]
    with pytest.raises(DriverReplaced):
        it.sink.fence(it.table)


@both
def test_an_earlier_driver_looks_again_after_it_waited_for_its_own_maintenance(
    kind: str, place: Make
) -> None:
    it = place(kind).create()
    it.sink.append(it.table, small(it, (1, "a", False, 1)), it.commit(1))
    other, form = successor(it), it.sink.format
    alone = form.exclusive

    @contextmanager
    def waiting(table: Any) -> Iterator[None]:
        other.sink.fence(table)
        with alone(table):
            yield

    form.exclusive = waiting
    calls: list[Callable[[], Any]] = [
        lambda: it.sink.truncate(it.table, it.commit(2), sequence=9),
        lambda: it.sink.delete_older(it.table, 9, it.commit(2)),
        lambda: it.evolve(2, column("id", pa.int64(), "id")),
        lambda: it.sink.write_by_sql(
            it.table, it.commit(2), lambda session, target: session.sql(f"DELETE FROM {target}")
        ),
    ]
    for generation, call in enumerate(calls, start=2):
        it.sink.begin(generation - 1)
        other.sink.begin(generation)
        with pytest.raises(DriverReplaced):
            call()
    it.arrow = other.arrow
    assert other.rows() == [(1, "a", 1)]


def test_a_deletion_of_all_rows_that_was_begun_before_is_refused(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, small(it, (1, "a", False, 1)), it.commit(1))
    other, form = successor(it), it.sink.format
    stale = form.load(it.table)
    other.sink.fence(it.table)
    with pytest.raises(Py4JJavaError):
        form.truncate(it.table, stale, it.commit(2))
    assert other.rows() == [(1, "a", 1)]


@both
def test_a_target_of_the_successor_is_fenced_from_its_creation(kind: str, place: Make) -> None:
    it = place(kind)
    successor(it).create()
    with pytest.raises(DriverReplaced):
        it.sink.append(it.table, small(it, (1, "a", False, 1)), it.commit(1))
