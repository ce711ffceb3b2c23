"""What is made of a change at the source, under each policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.phases import DROPPED, READ, READING, SPLITTING

from penstock.config import SchemaConfig
from penstock.model.offset import Offset
from penstock.model.plan import ColumnOrigin, DropTarget, Evolve, KeptColumns, Park, TruncateTarget
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.schema_change import NOT_OF_THEN, TableEffect
from penstock.model.shards import ShardRule, Shards
from penstock.model.table import TableState
from penstock.planning.policy import Policies, judge, new_state

T = TableId("shop", "t")
END = Offset(900)


def schema(*names: str, version: int = 1, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(T, tuple(Column(name, "int") for name in names), key, version)


def live(known: TableSchema | None = None, **changes: Any) -> TableState:
    table = TableState(known or schema("id", "a"), Offset(4), READ, written=True, last_epoch=7)
    return replace(table, **changes)


def policies(*, append_only: bool = False, reads: bool = True, **options: Any) -> Policies:
    return Policies(SchemaConfig.model_validate(options), append_only=append_only, reads=reads)


def evolved(after: TableSchema, *before: str | None) -> TableEffect:
    return TableEffect(T, (Evolve(after, tuple(ColumnOrigin(name) for name in before)),))


RENAMED = evolved(schema("id", "b", version=2), "id", "a")


def test_by_default_the_target_follows_its_columns() -> None:
    verdict = judge(live(), RENAMED, END, policies())
    assert verdict.steps == RENAMED.steps
    assert (verdict.state, verdict.version, verdict.decision) == (None, 2, "applied")


def test_fail_parks_the_table_and_says_how_to_go_on() -> None:
    [park] = judge(live(), RENAMED, END, policies(changes="fail"), begin=Offset(END - 9)).steps
    assert isinstance(park, Park) and park.offset == END and "unpark" in park.hint
    assert park.resumes == END - 9


def test_ignore_keeps_the_columns_and_fills_a_renamed_one_under_its_old_name() -> None:
    after = evolved(schema("id", "b", "new", version=2), "id", "a", None)
    verdict = judge(live(schema("id", "a", "gone")), after, END, policies(changes="ignore"))
    [step] = verdict.steps
    assert isinstance(step, Evolve)
    assert step.kept_columns == KeptColumns(schema("id", "a", "gone"), ("id", "b", None))
    assert verdict.decision == "ignored"
    again = evolved(schema("id", "c", version=3), "id", "b")
    [step] = judge(
        live(schema("id", "b", "new", version=2), kept_columns=step.kept_columns),
        again,
        END,
        policies(changes="ignore"),
    ).steps
    assert (
        isinstance(step, Evolve)
        and step.kept_columns is not None
        and step.kept_columns.sources == ("id", "c", None)
    )


def test_ignored_columns_come_back_and_the_table_is_read_again_once_it_may_evolve() -> None:
    kept = KeptColumns(schema("id", "old"), ("id", "a"))
    state = live(schema("id", "a", "more", version=2), kept_columns=kept)
    after = evolved(schema("id", "a", "more", "x", version=3), "id", "a", "more", None)
    verdict = judge(state, after, END, policies())
    [step] = verdict.steps
    assert isinstance(step, Evolve) and step.kept_columns is None
    assert [origin.before for origin in step.origins] == ["id", "old", None, None]
    assert verdict.state is not None and verdict.state.resnapshot_pending


def test_a_table_whose_key_is_gone_is_parked_by_a_merging_sink_only() -> None:
    keyless = evolved(schema("id", "a", version=2, key=()), "id", "a")
    assert isinstance(judge(live(), keyless, END, policies()).steps[-1], Park)
    assert judge(live(), keyless, END, policies(append_only=True)).steps == keyless.steps


def test_a_key_whose_column_the_target_does_not_keep_parks_the_table() -> None:
    moved = evolved(schema("id", "a", "uid", version=2, key=("uid",)), "id", "a", None)
    assert isinstance(judge(live(), moved, END, policies(changes="ignore")).steps[-1], Park)
    assert judge(live(), moved, END, policies()).state is None, "a key is only what a merge goes by"


def test_bounds_of_chunks_that_are_of_another_key_are_found_anew() -> None:
    moved = evolved(schema("id", "a", version=2, key=("a",)), "id", "a")
    verdict = judge(live(phase=READING), moved, END, policies())
    assert verdict.state is not None and "key changed" in verdict.state.resnapshot_pending
    renamed = evolved(schema("no", "a", version=2, key=("no",)), "id", "a")
    assert judge(live(phase=READING), renamed, END, policies()).state is None


@pytest.mark.parametrize(
    ("options", "pending", "parked"),
    [({}, True, False), ({"rereads": "keep"}, False, False), ({"rereads": "fail"}, False, True)],
)
def test_rows_that_changed_silently_are_read_again_kept_or_a_reason_to_stop(
    options: dict[str, Any], pending: bool, parked: bool
) -> None:
    effect = TableEffect(T, rereads="a partition was dropped")
    verdict = judge(live(), effect, END, policies(**options))
    why = verdict.state.resnapshot_pending if verdict.state is not None else ""
    assert (why == "a partition was dropped") == pending
    assert any(isinstance(step, Park) for step in verdict.steps) == parked
    assert "partition" in verdict.decision or parked


def test_a_pipeline_that_reads_no_rows_keeps_what_is_there() -> None:
    assert judge(live(), TableEffect(T, rereads="x"), END, policies(reads=False)).state is None


def test_a_dropped_tables_target_stays_unless_told_otherwise() -> None:
    effect = TableEffect(T, dropped=True)
    kept = judge(live(), effect, END, policies())
    assert kept.steps == () and kept.state is not None and kept.state.status == "dropped"
    assert judge(live(), effect, END, policies(dropped_tables="drop")).steps == (DropTarget(),)
    assert judge(live(), effect, END, policies(dropped_tables="drop", append_only=True)).steps == ()


def test_rows_of_a_shard_that_is_renamed_within_its_target_go_at_once_and_no_others() -> None:
    shards = Shards([ShardRule("shop.*", "shop.all"), ShardRule("other.*", "other.all")])
    known = replace(policies(), shards=shards)
    for name, steps in ((TableId("shop", "z"), (DropTarget(),)), (TableId("other", "z"), ())):
        assert judge(live(), TableEffect(T, renamed=name), END, known).steps == steps
    assert judge(live(), TableEffect(T, renamed=TableId("shop", "z")), END, policies()).steps == ()
    assert judge(live(), TableEffect(T, dropped=True), END, known).steps == ()


def test_a_table_created_under_the_name_of_a_dropped_one_begins_with_an_emptied_target() -> None:
    effect = TableEffect(T, created=schema("id", "z"), fills=True)
    state = judge(live(phase=DROPPED), effect, END, policies()).state
    assert state is not None
    assert (state.phase, state.start, state.target_reset) == (SPLITTING, END, "truncate")
    assert (state.schema.version, state.written, state.last_epoch) == (2, False, 7)


@pytest.mark.parametrize("fills", [True, False])
def test_a_table_whose_definition_of_then_is_not_known_is_read_with_the_one_of_now(fills: bool) -> None:
    effect = TableEffect(T, created=schema("id", "z"), fills=fills, rereads=NOT_OF_THEN)
    verdict = judge(live(), effect, END, policies())
    assert verdict.state is not None and verdict.state.resnapshot_pending == NOT_OF_THEN
    assert (verdict.state.target_reset, verdict.decision) == ("truncate", f"read again: {NOT_OF_THEN}")
    assert new_state(effect, END, policies()).resnapshot_pending == NOT_OF_THEN
    assert effect.definition_after(None) is None
    unread = new_state(effect, END, policies(reads=False))
    assert unread.parked is not None and NOT_OF_THEN in unread.parked.reason


def wide(*key: str, type: str = "int") -> TableSchema:
    return TableSchema(T, (Column("id", type), Column("a", "int"), Column("b", "int")), key, 1)


@pytest.mark.parametrize(
    ("after", "reset"),
    [
        (wide("id", "a"), "evolve"),
        (wide("a", "b", "id"), "evolve"),
        (wide("id"), "truncate"),
        (wide("id", "b"), "truncate"),
        (wide("id", "a", type="bigint"), "truncate"),
    ],
)
def test_a_target_is_emptied_if_the_key_of_the_table_that_takes_its_name_tells_its_rows_not_apart(
    after: TableSchema, reset: str
) -> None:
    effect = TableEffect(T, created=after, fills=True, was=TableId("shop", "new"))
    state = judge(live(wide("id", "a")), effect, END, policies()).state
    assert state is not None and (state.target_reset, state.written) == (reset, reset == "evolve")


@pytest.mark.parametrize(("key", "empties"), [(("no", "a"), False), (("no",), True)])
def test_a_target_that_is_read_again_is_emptied_if_its_new_key_tells_its_rows_not_apart(
    key: tuple[str, ...], empties: bool
) -> None:
    after = schema("no", "a", version=2, key=key)
    effect = replace(evolved(after, "id", "a"), rereads="values of column a are converted")
    known = schema("id", "a", key=("id", "a"))
    for rereads, expected in (("resnapshot", empties), ("keep", False)):
        steps = judge(live(known), effect, END, policies(rereads=rereads)).steps
        assert any(isinstance(step, TruncateTarget) for step in steps) == expected
