"""A write that is killed anywhere is done again, by a sink that knows nothing of the first one: as if it had
been done once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.sinks.conformance.case import Case, Values, column
from tests.sinks.conformance.kills import calls_of, killed_at, places_of

TEXT = pa.string()
EVOLVED = (
    column("id", pa.int64(), "id"),
    column("title", TEXT, "name"),
    column("n", pa.int32(), default="7"),
)
FEW = (0.5, 0.95)
MANY = tuple(number / 20 for number in range(20))

fractions = pytest.mark.parametrize(
    "parts", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)

TABLE_WRITES: dict[str, tuple[Callable[[Case], bool], list[Values]]] = {
    "append": (lambda it: it.append(2, (3, "c", False, 20)), [(1, "a", 10), (2, "b", 11), (3, "c", 20)]),
    "merge": (
        lambda it: it.merge(2, (1, "A", False, 20), (2, None, True, 21), (3, "c", False, 22)),
        [(1, "A", 20), (3, "c", 22)],
    ),
    "truncate": (lambda it: it.truncate(2, 20), []),
    "delete_older": (lambda it: it.tables.delete_older(it.table, 11, it.commit(2)), [(2, "b", 11)]),
    "evolve": (lambda it: it.evolve(2, *EVOLVED), [(1, "a", 7, 10), (2, "b", 7, 11)]),
}
QUICK = ["append", "merge", "evolve"]
SLOW = sorted(TABLE_WRITES.keys() - set(QUICK))


@pytest.mark.slow_for("delta-append", "delta-evolve", "delta-merge")
@fractions
@pytest.mark.parametrize("write", QUICK + [pytest.param(name, marks=pytest.mark.slow) for name in SLOW])
def test_a_write_to_a_table_that_was_killed_is_done_once(
    tables: Case, write: str, parts: tuple[float, ...]
) -> None:
    act, expected = TABLE_WRITES[write]

    def begun() -> Case:
        it = tables.other().create()
        it.append(1, (1, "a", False, 10), (2, "b", False, 11))
        return it

    it, places = begun(), places_of(tables.sink)
    calls = calls_of(lambda: act(it), places)
    assert it.rows() == expected
    for part in parts:
        it = begun()
        killed_at(1 + int(part * calls), lambda it=it: act(it), places)  # type: ignore[misc]
        again = it.again()
        act(again)
        assert again.rows() == expected, f"killed at {part} of {write}"
        assert again.state().last_commit == it.commit(2)
        assert not act(again.again())


@pytest.mark.slow_for("delta")  # tests/sinks/lake/test_sink.py leaves half a target behind
@fractions
def test_a_target_whose_making_was_killed_is_made(tables: Case, parts: tuple[float, ...]) -> None:
    places = places_of(tables.sink)
    calls = calls_of(tables.other().create, places)
    for part in parts:
        it = tables.other()
        killed_at(1 + int(part * calls), it.create, places)
        again = it.again().create()
        assert again.append(1, (1, "a", False, 10))
        assert again.rows() == [(1, "a", 10)]


@fractions
def test_changes_whose_writing_was_killed_come_once(changes: Case, parts: tuple[float, ...]) -> None:
    if not changes.kind.durable or not changes.shows_rows:
        pytest.skip("what it wrote cannot be asked for")

    def begun() -> Case:
        it = changes.other().create()
        it.write(1, (1, "a", "insert", 10))
        return it

    def act(it: Case) -> bool:
        return it.write(2, (1, "b", "update_postimage", 20), (2, "c", "insert", 21))

    it, places = begun(), places_of(changes.sink)
    calls = calls_of(lambda: act(it), places)
    expected = it.rows()
    assert len(expected) == 3
    for part in parts:
        it = begun()
        killed_at(1 + int(part * calls), lambda it=it: act(it), places)  # type: ignore[misc]
        again = it.again()
        act(again)
        assert again.rows() == expected, f"killed at {part}"
        assert not act(again.again())


@pytest.mark.slow_for("delta")
def test_a_write_whose_tasks_fail_leaves_nothing_behind(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10))
    bad = it.latest((1, "x", False, 20), (2, "y", False, 21))
    frame = bad.frame.mapInArrow(_fail_after_the_first, bad.frame.schema)
    for write in (it.tables.append, _merge_into(it)):
        with pytest.raises(Exception, match="the task fails"):
            write(it.table, type(bad)(frame), it.commit(2))
        again = it.again()
        assert again.rows() == [(1, "a", 10)] and again.state().last_commit == it.commit(1)
    assert it.merge(2, (1, "b", False, 20))
    assert it.rows() == [(1, "b", 20)]


def _merge_into(it: Case) -> Callable[..., bool]:
    return lambda table, rows, commit: it.tables.merge(table, rows, it.key, commit)


def _fail_after_the_first(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        if batch.num_rows:
            yield batch.slice(0, 1)
            raise RuntimeError("the task fails")


def test_a_kill_is_raised_at_the_call_that_is_asked_for(spark: SparkSession) -> None:
    from penstock.sinks.names import directory_name

    calls = calls_of(lambda: directory_name("a b"))
    assert calls > 1
    assert killed_at(1, lambda: directory_name("a b"))
    assert killed_at(calls, lambda: directory_name("a b"))
    assert not killed_at(calls + 1, lambda: directory_name("a b"))


def test_calls_of_a_sink_in_another_package_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "class Sink:\n    def write(self):\n        self.store()\n    def store(self): pass\n"
    (tmp_path / "other_module.py").write_text(code)
    (tmp_path / "other_package").mkdir()
    (tmp_path / "other_package" / "__init__.py").touch()
    (tmp_path / "other_package" / "sink.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("other_module", "other_package.sink"):
        sink = importlib.import_module(name).Sink()
        assert calls_of(sink.write) == 0
        assert calls_of(sink.write, places_of(sink)) == 2
