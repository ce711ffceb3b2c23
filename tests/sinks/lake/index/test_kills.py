"""A small commit that was killed anywhere is done again, with the index that the killed process has left: as
if it had been done once. Spark's own reading judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.conformance.kills import calls_of, killed_at
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few
from tests.sinks.lake.test_file_merge import newer
from tests.sinks.lake.test_history import Kept, kept

from penstock.model.history import History
from penstock.sinks.lake.history import HistorySink
from penstock.sinks.lake.index import replaced

pytestmark = pytest.mark.timeout(1800)  # forty kills of one case on a busy machine

Make = Callable[..., Place]
FEW = (0.4, 0.75, 0.97)
MANY = tuple(number / 40 for number in range(40))
QUICK = [("iceberg", "small", FEW), ("delta", "small", FEW)]
SLOW = [(kind, way, MANY) for kind in ("iceberg", "delta") for way in ("small", "large")]
EXPECTED = sorted(
    [(n, "a", 1) for n in range(10) if n not in (1, 2, 3, 4)] + [(1, "b", 2), (2, "c", 3), (12, "c", 3)]
)


def with_index(it: Place, directory: Path) -> Place:
    """The same with an index there. Whoever had it before is dead."""
    indexes = it.sink.format._indexes
    indexes._directory = directory
    return it


def begun(place: Make, kind: str, directory: Path) -> Place:
    it = with_index(place(kind).create(), directory)
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(10)]), it.commit(1))
    it.sink.merge(it.table, few(it, (1, "b", False, 2), (4, None, True, 2)), it.key, it.commit(2))
    it.sink.format._indexes.known(it.table).index.save()
    return it


def act(it: Place, way: str) -> bool:
    make: Any = few if way == "small" else newer
    rows = make(it, (2, "c", False, 3), (3, None, True, 3), (12, "c", False, 3))
    done: bool = it.sink.merge(it.table, rows, it.key, it.commit(3))
    return done


def buried(it: Place) -> None:
    """Does what the system does when a process ends."""
    indexes = it.sink.format._indexes
    indexes._adder.shutdown(wait=True)
    indexes._background.shutdown(wait=True)
    if indexes._lock is not None:
        indexes._lock.release()


@pytest.mark.parametrize(
    ("kind", "way", "parts"),
    [
        *[pytest.param(*one, id="-".join(one[:2])) for one in QUICK],
        *[pytest.param(*one, id="-".join([*one[:2], "many"]), marks=pytest.mark.slow) for one in SLOW],
    ],
)
def test_a_commit_by_the_index_that_was_killed_is_done_once(
    place: Make,
    kind: str,
    way: str,
    parts: tuple[float, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replaced, "is_worth_it", lambda *_, **__: True)
    it = begun(place, kind, tmp_path / "first")
    calls = calls_of(lambda: act(it, way))
    assert it.rows() == EXPECTED
    it.sink.close()
    for number, part in enumerate(parts):
        directory = tmp_path / str(number)
        it = begun(place, kind, directory)
        killed_at(1 + int(part * calls), lambda it=it: act(it, way))  # type: ignore[misc]
        buried(it)
        again = with_index(replace(it), directory)
        act(again, way)
        assert again.rows() == EXPECTED, f"killed at {part}"
        assert not act(again, way), "it is recorded"
        again.sink.merge(again.table, few(again, (12, None, True, 4), (7, "d", False, 4)), again.key,
                         again.commit(4))  # fmt: skip
        left = [row for row in EXPECTED if row[0] not in (7, 12)]
        assert again.rows() == sorted([*left, (7, "d", 4)]), f"after a kill at {part}"
        again.sink.close()


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("iceberg", FEW),
        *[
            pytest.param(kind, MANY, id=f"{kind}-many", marks=pytest.mark.slow)
            for kind in ("iceberg", "delta")
        ],
    ],
)
def test_versions_that_were_killed_are_written_once(
    place: Make, kind: str, parts: tuple[float, ...], tmp_path: Path
) -> None:
    def begun_versions(directory: Path) -> Kept:
        it = kept(place, kind, directly=True)
        with_index(it.it, directory)
        for number in range(10):
            it.insert(number, "a", "x")
        assert it.write()
        it.update((1, "a", "x"), (1, "a", "y"))
        assert it.write()
        it.it.sink.format._indexes.known(it.it.table).index.save()
        it.update((1, "a", "y"), (1, "b", "y"))
        it.delete(2, "a", "x")
        it.insert(2, "a", "z")
        it.update((3, "a", "x"), (3, "a", "z"))
        return it

    it = begun_versions(tmp_path / "first")
    calls = calls_of(it.write)
    it.check()
    it.it.sink.close()
    for number, part in enumerate(parts):
        it = begun_versions(tmp_path / str(number))
        killed_at(1 + int(part * calls), it.write)
        buried(it.it)
        again = with_index(replace(it.it), tmp_path / str(number))
        it.it, it.sink = again, HistorySink(again.sink, History({"shop.*": "scd2"}))
        it.repeat()
        it.check()
        assert not it.repeat(), "it is recorded"
        it.update((1, "b", "y"), (1, "b", "x"))
        it.delete(2, "a", "z")
        assert it.write()
        it.check()
        again.sink.close()
