"""What every sink that takes changes promises. A sink that shows no rows (`Case.shows_rows`) is asked through
its standard output, where that is what it writes to."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conformance.case import Case, Values, column, new_table

from penstock.errors import ConfigError, InternalError
from penstock.model.schema import TableId
from penstock.sinks.base import Foreign, Missing, Ours

TEXT = pa.string()
Seen = Callable[[Case], list[tuple[str, Values]]]


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str]) -> Seen:
    """All changes of a case: type and values of the source's columns, in the order of their sequences."""
    lines: list[dict[str, Any]] = []

    def changes_of(it: Case) -> list[tuple[str, Values]]:
        if it.shows_rows:
            frame = it.frame()
            names = [name for name in frame.columns if not name.startswith("_")]
            found = [row.asDict() for row in frame.collect()]
            rows = [(row["_sequence"], row["_change_type"], tuple(row[n] for n in names)) for row in found]
        else:
            lines.extend(map(json.loads, capsys.readouterr().out.splitlines()))
            own = [line for line in lines if line["table"] == str(it.table)]
            rows = [(one["sequence"], one["change"], tuple(one["row"].values())) for one in own]
        return [row[1:] for row in sorted(rows, key=lambda row: row[0])]

    return changes_of


def test_changes_are_added_as_they_are_and_epochs_that_are_done_again_add_nothing(
    changes: Case, seen: Seen
) -> None:
    it = changes.create()
    assert isinstance(it.sink.open(it.table), Ours)
    assert it.write(
        1, (1, "a", "insert", 10), (1, "a", "update_preimage", 11), (1, "b", "update_postimage", 12)
    )
    assert it.write(2, (1, "b", "delete", 20))
    assert not it.write(1, (1, "a", "insert", 10))
    assert not it.write(2, (1, "x", "delete", 20))
    expected = [("insert", (1, "a")), ("update_preimage", (1, "a")), ("update_postimage", (1, "b")),
                ("delete", (1, "b"))]  # fmt: skip
    assert seen(it) == expected
    if it.kind.durable:
        again = it.again()
        assert again.state().last_commit == it.commit(2) and not again.write(2, (1, "b", "delete", 20))
        assert seen(again) == expected


def test_steps_of_an_epoch_count_one_by_one(changes: Case, seen: Seen) -> None:
    it = changes.create()
    assert it.write(5, (1, "a", "insert", 10), step=0)
    assert it.truncate(5, 15, step=1)
    assert it.write(5, (2, "b", "insert", 20), step=2)
    assert not it.write(5, (1, "a", "insert", 10), step=0)
    assert not it.truncate(5, 15, step=1)
    kinds = [kind for kind, _ in seen(it)]
    assert kinds == ["insert", "truncate", "insert"]


def test_changes_of_a_table_without_a_key_are_taken(changes: Case, seen: Seen) -> None:
    it = changes.again(key=()).create()
    it.write(1, (1, "a", "insert", 10), (1, "a", "insert", 11))
    assert seen(it) == [("insert", (1, "a")), ("insert", (1, "a"))]


def test_nulls_and_names_of_every_kind_arrive(changes: Case, seen: Seen) -> None:
    names = ["a.b", "`", "'\"", "日本 %20=#?*", "${env:HOME}", "\\"]
    schema = pa.schema([("id", pa.int64()), *[(name, TEXT) for name in names]])
    it = changes.again(arrow=schema, table=TableId(f"{new_table().database}_x/..", "日本 %20=#?*")).create()
    it.write(1, (1, *names, "insert", 10), (2, *[None] * len(names), "insert", 11))
    assert seen(it) == [("insert", (1, *names)), ("insert", (2, *[None] * len(names)))]


def test_what_was_written_before_a_change_of_columns_stays(changes: Case, seen: Seen) -> None:
    it = changes.create()
    it.write(1, (1, "a", "insert", 10))
    columns = [column("id", pa.int64(), "id"), column("name", TEXT, "name"), column("more", pa.int32())]
    assert it.evolve(2, *columns)
    assert not it.evolve(2, *columns)
    now = it.with_columns(*columns) if it.kind.durable else it
    assert it.state().columns == ("id", "name", "more")
    rows = now.changelog((2, "b", "insert", 20)) if now is it else now.changelog((2, "b", 5, "insert", 20))
    now.changes.write_changes(it.table, rows, it.commit(3))
    assert [values[:2] for _, values in seen(now)] == [(1, "a"), (2, "b")]


@pytest.mark.slow
def test_a_value_may_have_16_mb_and_a_table_1000_columns(changes: Case, seen: Seen) -> None:
    it = changes.create()
    large = "é" * (8 * 1024**2)
    it.write(1, (1, large, "insert", 10))
    assert seen(it) == [("insert", (1, large))]
    wide = changes.other(arrow=pa.schema([(f"c{number}", pa.int32()) for number in range(1000)])).create()
    wide.write(1, (*range(1000), "insert", 10))
    assert seen(wide) == [("insert", tuple(range(1000)))]


def test_a_commit_of_another_pipeline_is_refused(changes: Case) -> None:
    it = changes.create()
    with pytest.raises(InternalError, match="A commit of pipeline"):
        it.again(pipeline=str(uuid.uuid4())).changes.write_changes(
            it.table, it.changelog((1, "a", "insert", 10)), it.commit(1)
        )


def test_the_target_of_another_pipeline_is_not_touched(changes: Case, seen: Seen) -> None:
    if not changes.kind.durable:
        assert changes.create().again(pipeline=str(uuid.uuid4())).sink.open(changes.table) == Missing()
        return
    it = changes.create()
    it.write(1, (1, "a", "insert", 10))
    other = it.again(pipeline=str(uuid.uuid4()))
    found = other.sink.open(it.table)
    assert isinstance(found, Foreign) and found.owner == it.pipeline
    with pytest.raises(ConfigError, match="is taken"):
        other.create()
    assert seen(it) == [("insert", (1, "a"))]
