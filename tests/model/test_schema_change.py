from __future__ import annotations

from dataclasses import replace

from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.schema_change import TableEffect, only_truncates

ORDERS, LINES = TableId("shop", "orders"), TableId("shop", "lines")
ORDERS_EMPTIED, LINES_EMPTIED = TableEffect.truncated(ORDERS), TableEffect.truncated(LINES)


def test_a_statement_only_truncates_if_it_empties_all_of_the_tables_and_does_nothing_else() -> None:
    assert only_truncates([ORDERS_EMPTIED], {ORDERS})
    assert only_truncates([ORDERS_EMPTIED, LINES_EMPTIED], {ORDERS, LINES})
    assert only_truncates([ORDERS_EMPTIED, LINES_EMPTIED], {ORDERS})
    assert not only_truncates([ORDERS_EMPTIED], {ORDERS, LINES})
    schema = TableSchema(ORDERS, (Column("id", "bigint", False),), ("id",))
    for other in (
        replace(ORDERS_EMPTIED, rereads="a partition was emptied"),
        TableEffect(ORDERS, created=schema),
        TableEffect(LINES, dropped=True),
    ):
        assert not only_truncates([other], {ORDERS})
        assert not only_truncates([ORDERS_EMPTIED, other], {ORDERS})


def test_a_statement_without_effects_says_nothing_of_the_definition_before_it() -> None:
    assert not only_truncates([], {ORDERS})
