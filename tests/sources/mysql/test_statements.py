"""What statements come to for captured tables."""

from __future__ import annotations

import pytest

from penstock.config import TablesConfig
from penstock.model.effect import TableEffect
from penstock.model.offset import Offset
from penstock.model.plan import AddColumns, Park
from penstock.model.schema import Column, TableId, TableSchema, TypeOptions
from penstock.relaylog.reader import Statement
from penstock.sources.base import TableFilter
from penstock.sources.mysql.ddl import effects
from penstock.sources.mysql.statements import MySqlStatements

CHILD = TableId("shop", "child")
SCHEMA = TableSchema(CHILD, (Column("id", "int", nullable=False),), ("id",))
GROWN = TableSchema(CHILD, (*SCHEMA.columns, Column("p", "int")), ("id",), 2)


def judged(sql: str, *, parks_cascades: bool, live: bool) -> list[TableEffect]:
    """The effects on `shop.child`, whose definition in the catalog is `GROWN`."""
    reader = MySqlStatements(
        TableFilter(TablesConfig(include=["shop.*"])),
        lambda _: GROWN,
        lambda statement: effects(statement.sql, statement.database),
        types=TypeOptions(),
        parks_cascades=parks_cascades,
    )
    statement = Statement(Offset(100), Offset(200), "shop", sql, 0)
    return reader.effects(statement, {CHILD: SCHEMA} if live else {})


ALTERS = [
    "ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE",
    "ALTER TABLE child ADD COLUMN p INT REFERENCES parent (id) ON UPDATE SET NULL",
]


@pytest.mark.parametrize("sql", ALTERS)
def test_a_cascading_foreign_key_parks_the_table_where_cascades_are_not_logged(sql: str) -> None:
    [step] = judged(sql, parks_cascades=True, live=True)[-1].steps
    assert isinstance(step, Park)
    assert step.offset == 200
    assert "before MySQL 9.6" in step.reason and "penstock resnapshot FILE shop.child" in step.hint


def test_a_cascading_foreign_key_changes_nothing_where_cascades_are_logged() -> None:
    assert judged(ALTERS[0], parks_cascades=False, live=True) == []
    [added] = judged(ALTERS[1], parks_cascades=False, live=True)
    assert [type(step) for step in added.steps] == [AddColumns]


@pytest.mark.parametrize("parks", [True, False])
def test_a_table_created_with_a_cascading_foreign_key(parks: bool) -> None:
    sql = "CREATE TABLE child (id INT PRIMARY KEY REFERENCES parent (id) ON DELETE CASCADE, p INT)"
    [created] = judged(sql, parks_cascades=parks, live=False)
    assert created.created == GROWN
    assert [type(step) for step in created.steps] == ([Park] if parks else [])
