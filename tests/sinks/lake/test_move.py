"""Targets that get other names, as one, wherever it is cut off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.conftest import Place

from penstock.model.plan import Move
from penstock.model.schema import TableId
from penstock.sinks.base import Missing, Ours
from penstock.sinks.lake.delta import local as delta

Make = Callable[..., Place]
A, B, C = (TableId("shop", name) for name in "abc")


class Killed(BaseException):
    pass


def filled(place: Place, table: TableId, text: str) -> Place:
    it = replace(place, table=table).create()
    it.sink.append(table, it.latest((1, text, False, 10)), it.commit(1))
    return it


def held(place: Place, table: TableId) -> list[Any] | None:
    if isinstance(place.sink.open(table), Missing):
        return None
    return [row["name"] for row in place.sink.read(table).collect()]


def cut_off(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The process is killed after so many renames of directories."""
    real, count = delta._rename, 0

    def rename(path: Path, name: Path) -> None:
        nonlocal count
        if count == after:
            raise Killed
        count += 1
        real(path, name)

    monkeypatch.setattr(delta, "_rename", rename)


@pytest.mark.parametrize(
    "after", [2, *[pytest.param(number, marks=pytest.mark.slow) for number in (None, 0, 1, 3, 4, 5)]]
)
def test_names_that_are_exchanged_and_taken_end_right_wherever_the_process_is_killed(
    place: Make, monkeypatch: pytest.MonkeyPatch, after: int | None
) -> None:
    it = place("delta")
    for table in (A, B, C):
        filled(it, table, f"was {table.table}")
    # RENAME TABLE a TO tmp, b TO a, tmp TO b; and c is a table that is gone, whose name another takes.
    moves = [
        Move(A, B, it.sink.identity(A) or ""),
        Move(B, C, it.sink.identity(B) or ""),
    ]
    if after is not None:
        with monkeypatch.context() as patched:
            cut_off(patched, after)
            with contextlib.suppress(Killed):
                it.sink.move(moves)
    again = replace(it)  # a sink of a new process
    assert again.sink.move(moves) == []
    assert (held(again, A), held(again, B), held(again, C)) == (None, ["was a"], ["was b"])
    assert again.sink.move(moves) == []
    assert (held(again, A), held(again, B), held(again, C)) == (None, ["was a"], ["was b"])
    assert again.config.path is not None and not list(again.config.path.glob(".*"))


def test_two_tables_change_names_and_what_was_committed_is_known_under_the_new_one(place: Make) -> None:
    it = place("delta")
    filled(it, A, "was a")
    filled(it, B, "was b")
    moves = [Move(A, B, it.sink.identity(A) or ""), Move(B, A, it.sink.identity(B) or "")]
    assert it.sink.move(moves) == []
    assert (held(it, A), held(it, B)) == (["was b"], ["was a"])
    found = it.sink.open(A)
    assert isinstance(found, Ours) and found.last_commit == it.commit(1)
    late = replace(it, table=A)
    assert late.sink.append(A, late.latest((2, "new", False, 20)), late.commit(2))
    assert sorted(held(it, A) or []) == ["new", "was b"]


def test_a_target_that_is_nowhere_is_named(place: Make) -> None:
    it = place("delta")
    filled(it, A, "was a")
    move = Move(A, B, it.sink.identity(A) or "")
    it.sink.drop(A)
    assert it.sink.move([move]) == [move]


def test_icebergs_default_catalog_renames_no_table_so_its_targets_stay_where_they_are(place: Make) -> None:
    it = filled(place("iceberg"), A, "was a")
    assert it.sink.identity(A) is None
    name = f"lake.`{it.config.namespace.replace('{database}', 'shop')}`"
    with pytest.raises(Exception, match="Cannot rename Hadoop tables"):
        it.spark.sql(f"ALTER TABLE {name}.a RENAME TO {name}.b")
