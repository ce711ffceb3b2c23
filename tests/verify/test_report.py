"""Only what should be equal is compared; what is left out is listed with its reason, and has an exit code."""

from __future__ import annotations

from typing import Any

import pytest
from tests.phases import PARKED, READ, READING, REMOVED, SPLITTING, behind

from penstock.commands.verify import document
from penstock.model.offset import Offset
from penstock.model.schema import CascadingKey, Column, TableId, TableSchema
from penstock.model.table import Dropped, Parked, ResnapshotPending, TableState
from penstock.verify.plan import BATCH_TABLES_MAX, SMALL_ROWS_MAX, batches
from penstock.verify.report import DifferentKey, TableReport, exit_code
from penstock.verify.subject import NotCompared, Why, not_compared

T, P = TableId("shop", "t"), TableId("shop", "p")


def state(name: TableId = T, **fields: Any) -> TableState:
    schema = TableSchema(name, (Column("id", "int", nullable=False),), ("id",))
    given: dict[str, Any] = {"schema": schema, "phase": READ, "last_epoch": 3} | fields
    return TableState(start=Offset(4), **given)


@pytest.mark.parametrize(
    ("table", "why", "said"),
    [
        (state(), None, ""),
        (
            state(phase=Dropped(Offset(9), "Table shop.t: renamed to shop.u.")),
            Why.GONE,
            "renamed to shop.u",
        ),
        (state(phase=REMOVED), Why.REMOVED, "removed"),
        (state(phase=Parked(Offset(9), "No.", "Do.")), Why.PARKED, "No. Do."),
        (state(phase=ResnapshotPending("its rows changed", PARKED)), Why.READING, "its rows changed"),
        (state(phase=ResnapshotPending("its rows changed")), Why.READING, "its rows changed"),
        (state(phase=READING), Why.READING, "snapshot"),
        (state(phase=SPLITTING), Why.READING, "snapshot"),
        (state(phase=behind(77)), Why.CATCHING_UP, "77"),
        (state(last_epoch=0), Why.UNWRITTEN, "not written"),
    ],
)
def test_only_a_table_that_should_be_equal_is_compared(table: TableState, why: Why | None, said: str) -> None:
    found = not_compared(table, {T: table})
    assert (found.why if found else None) == why
    assert found is None or said in found.reason


def test_a_table_that_waits_for_somebody_to_mend_its_parent_counts_as_parked() -> None:
    key = CascadingKey("k", ("id",), P, ("id",), "CASCADE", "NO ACTION")
    schema = TableSchema(T, (Column("id", "int", nullable=False),), ("id",), foreign_keys=(key,))
    child = state(schema=schema, phase=ResnapshotPending("its parent is parked", PARKED))
    parent = state(P, phase=PARKED)
    found = not_compared(child, {T: child, P: parent})
    assert found is not None and found.why == Why.PARKED


EQUAL = TableReport(T, 1, 1, Offset(9))
DIFFERS = TableReport(T, 1, 1, Offset(9), keys_different=[DifferentKey({"id": "1"}, "missing")])
FAILED = TableReport(T, error="The source refused.")


def left_out(why: Why) -> TableReport:
    return TableReport(P, not_compared=NotCompared(why, "Because."))


@pytest.mark.parametrize(
    ("reports", "named", "code"),
    [
        ([], False, 0),
        ([EQUAL], False, 0),
        ([EQUAL, left_out(Why.GONE), left_out(Why.REMOVED), left_out(Why.OTHER_COLUMNS)], False, 0),
        ([EQUAL, left_out(Why.PARKED), left_out(Why.READING)], False, 4),
        ([EQUAL, left_out(Why.READING)], False, 6),
        ([EQUAL, left_out(Why.CATCHING_UP)], False, 6),
        ([EQUAL, left_out(Why.GONE)], True, 6),
        ([DIFFERS, left_out(Why.PARKED)], False, 1),
        ([EQUAL, FAILED], False, 1),
    ],
)
def test_the_exit_code_says_whether_anything_differs_and_what_was_left_out(
    reports: list[TableReport], named: bool, code: int
) -> None:
    assert exit_code(reports, named=named) == code
    said = document(reports, code)
    assert said["equal"] == (code == 0)
    assert len(said["tables"]) + len(said["not_compared"]) == len(reports)


def test_small_tables_are_taken_together_and_large_ones_alone() -> None:
    names = [TableId("shop", f"t{number:03d}") for number in range(150)]
    found = list(batches([(names[0], SMALL_ROWS_MAX + 1), *((name, 10) for name in names[1:])]))
    assert sorted(name for batch in found for name in batch) == names
    assert found[-1] == (names[0],)
    assert [len(batch) for batch in found[:-1]] == [
        BATCH_TABLES_MAX,
        BATCH_TABLES_MAX,
        149 - 2 * BATCH_TABLES_MAX,
    ]
