"""Which definitions a statement changed, for sinks that tell it."""

from __future__ import annotations

from penstock.model.offset import LogRange, Offset
from penstock.model.plan import ColumnOrigin, DefinitionChange, EpochPlan, Evolve, Park
from penstock.model.plan_json import plan_from_text, plan_to_text
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.planning.statement_effects import definition_changes

A, B = TableId("d", "a"), TableId("d", "b")


def schema(table: TableId, *names: str) -> TableSchema:
    return TableSchema(table, tuple(Column(name, "int") for name in names), ("id",))


def evolved(before: TableSchema, after: TableSchema) -> TableEffect:
    return TableEffect(before.table, (Evolve(after, tuple(ColumnOrigin() for _ in after.columns)),))


def changes(*effects: TableEffect, live: TableSchema) -> list[tuple[TableSchema | None, TableSchema | None]]:
    found = definition_changes(effects, {live.table: live})
    return [(one.before, one.after) for one in found]


def test_altered_created_and_dropped_tables_have_their_definitions_before_and_after() -> None:
    old, new, other = schema(A, "id"), schema(A, "id", "x"), schema(B, "id")
    assert changes(evolved(old, new), live=old) == [(old, new)]
    assert changes(TableEffect(B, created=other), live=old) == [(None, other)]
    assert changes(TableEffect(A, dropped=True), live=old) == [(old, None)]


def test_a_renamed_table_is_dropped_and_created_and_a_name_can_be_taken_at_once() -> None:
    old, moved, again = schema(A, "id"), schema(B, "id"), schema(A, "id", "z")
    renamed = (TableEffect(A, renamed=B), TableEffect(B, created=moved, was=A))
    assert changes(*renamed, live=old) == [(old, None), (None, moved)]
    assert changes(TableEffect(A, dropped=True), TableEffect(A, created=again), live=old) == [
        (old, None), (None, again),
    ]  # fmt: skip
    assert changes(TableEffect(A, created=again), live=old) == [(old, None), (None, again)]


def test_what_changes_rows_only_is_no_change_of_a_definition() -> None:
    old = schema(A, "id")
    assert changes(TableEffect.truncated(A), live=old) == []
    assert changes(evolved(old, old), live=old) == []


def test_nothing_is_told_of_a_table_that_is_parked() -> None:
    old = schema(A, "id")
    assert changes(TableEffect(A, (Park(Offset(9), "why", "cure"),)), live=old) == []


def test_plans_keep_them() -> None:
    old, new = schema(A, "id"), schema(A, "id", "x")
    told = (DefinitionChange(old, new), DefinitionChange(None, old), DefinitionChange(new, None))
    plan = EpochPlan(7, LogRange(Offset(1), Offset(9)), (), definitions=told)
    numbered = [old, new]
    text = plan_to_text(plan, numbered.index)
    assert plan_from_text(text, numbered.__getitem__) == plan
