"""Whoever follows tables over statements meets each that concerns him, in log order, with the definitions of
its place."""

from __future__ import annotations

from dataclasses import replace

from penstock.model.offset import LogRange, Offset
from penstock.model.plan import ColumnOrigin, Evolve, Park, TruncateTarget
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.planning.statement_effects import effects_in
from penstock.relaylog.index import Statement

A, B = TableId("shop", "a"), TableId("shop", "b")


def schema(table: TableId, version: int = 1) -> TableSchema:
    return TableSchema(table, (Column("id", "int"),), ("id",), version)


class Script:
    """A log whose statements each raise the version of a table, and their reader."""

    def __init__(self, *tables: TableId) -> None:
        self.tables = tables
        self.asked: list[dict[TableId, TableSchema]] = []

    def statements(self, range_: LogRange) -> list[Statement]:
        ends = [Offset(10 * number) for number in range(1, len(self.tables) + 1)]
        return [
            Statement(Offset(end - 5), end, "shop", "ALTER TABLE", 0)
            for end in ends
            if range_.start < end <= range_.end
        ]

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        self.asked.append(live)
        table = self.tables[statement.end // 10 - 1]
        after = replace(live[table], version=live[table].version + 1)
        return [TableEffect(table, (Evolve(after, (ColumnOrigin("id"),)),))]

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return tables & {self.tables[statement.end // 10 - 1]}


def test_definitions_that_are_carried_on_are_those_of_the_next_statement() -> None:
    script, live = Script(A, B, A), {A: schema(A), B: schema(B)}
    found = []
    for statement, [effect] in effects_in(
        script, LogRange(Offset(0), Offset(99)), script, live, lambda effect, _: effect.table == A
    ):
        after = effect.definition_after(live[A])
        assert after is not None
        live[A] = after
        found.append((statement.end, after.version))
    assert found == [(10, 2), (30, 3)], "that of the other table is passed over"
    assert [one[A].version for one in script.asked] == [1, 2, 2]


def test_a_statement_behind_the_one_that_ends_a_range_is_not_read() -> None:
    script = Script(A, A)
    walk = effects_in(script, LogRange(Offset(0), Offset(99)), script, {A: schema(A)}, lambda *_: True)
    assert next(walk)[0].end == 10 and len(script.asked) == 1
    nothing = effects_in(script, LogRange(Offset(20), Offset(99)), script, {}, lambda *_: True)
    assert next(nothing, None) is None


def test_a_definition_ends_with_its_table_or_when_it_cannot_be_known() -> None:
    before, other = schema(A), schema(A, 2)
    park = Park(Offset(9), "why", "cure")
    evolve = Evolve(other, (ColumnOrigin("id"),))
    for effect, after in (
        (TableEffect(A, voids="x"), before),
        (TableEffect(A, (TruncateTarget(),)), before),
        (TableEffect(A, (evolve,)), other),
        (TableEffect(A, (evolve, park)), None),
        (TableEffect(A, dropped=True), None),
        (TableEffect(A, renamed=B), None),
        (TableEffect(A, created=other, renamed=B), other),
        (TableEffect(A, (park,), created=other), None),
    ):
        assert effect.definition_after(before) == after
    assert TableEffect(A, created=other).definition_after(None) == other
    assert TableEffect(A, rereads="x").definition_after(None) is None
