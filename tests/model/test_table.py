from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState, TableStatus

T = TableId("shop", "t")
BEHIND = TableState(T, Offset(4), TableSchema(T, (Column("id", "int"),), ("id",)), resumes=Offset(8))


def test_a_table_that_was_unparked_catches_up_unless_it_is_to_be_read_again() -> None:
    assert BEHIND.catching_up and not BEHIND.planned
    assert not replace(BEHIND, due="its rows are not known").catching_up


@pytest.mark.parametrize("status", ["parked", "dropped"])
def test_a_table_that_is_not_followed_does_not_catch_up(status: TableStatus) -> None:
    """Log would be kept for it, and looked for after it is gone."""
    assert not replace(BEHIND, status=status).catching_up
