"""Every phase that can be stored comes back as it was, and every row that was ever written is understood."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.phases import DROPPED, LOG_ONLY, READ, READING, REMOVED, SPLITTING

from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import (
    CatchingUp,
    Parked,
    Phase,
    ResnapshotPending,
    TableState,
    is_catching_up,
    is_reading,
    is_resnapshot_pending,
    is_splitting,
)
from penstock.state.phases import PhaseColumns, columns_of, phase_of

SCHEMA = TableSchema(TableId("shop", "t"), (Column("id", "int"),), ("id",))

FOLLOWED = (SPLITTING, READING, LOG_ONLY, READ)
RESUMES = (None, CatchingUp(Offset(7), LOG_ONLY), CatchingUp(Offset(7), READ))
PARKED = [Parked(Offset(9), "why", hint, resumes) for hint, resumes in product(("", "cure"), RESUMES)]
PHASES: list[Phase] = [
    *FOLLOWED,
    *(CatchingUp(Offset(7), then) for then in FOLLOWED),
    *PARKED,
    *(ResnapshotPending("rows changed", parked) for parked in (None, *PARKED)),
    DROPPED,
    REMOVED,
]


@pytest.mark.parametrize("phase", PHASES, ids=str)
def test_a_phase_comes_back_from_its_columns(phase: Phase) -> None:
    assert phase_of(columns_of(phase)) == phase


@pytest.mark.parametrize(
    ("status", "snapshot", "pending", "resumes", "parked_at"),
    list(
        product(
            ("live", "parked", "dropped", "removed"),
            ("none", "splitting", "reading", "done"),
            ("", "rows changed"),
            (None, 7),
            (None, 9),
        )
    ),
)
def test_a_row_means_what_it_meant_when_its_columns_were_the_fields_of_a_table(
    status: Any, snapshot: Any, pending: str, resumes: int | None, parked_at: int | None
) -> None:
    """Whatever earlier versions left in columns that did not matter for the status."""
    row = PhaseColumns(status, snapshot, "why", "cure", parked_at, pending, resumes)
    table = TableState(SCHEMA, Offset(4), phase_of(row))
    live, again, alone = status == "live", bool(pending), resumes is not None
    assert table.status == status
    assert table.planned == (live and not again and not alone)
    assert table.reading == is_reading(table) == (table.planned and snapshot in ("splitting", "reading"))
    assert is_splitting(table) == (table.planned and snapshot == "splitting")
    assert is_catching_up(table) == (live and not again and alone)
    assert table.catches_up_from == (7 if is_catching_up(table) else None)
    assert is_resnapshot_pending(table) == (again and status in ("live", "parked"))
    assert table.resnapshot_pending == (pending if status in ("live", "parked") else "")
    if table.planned or is_catching_up(table):
        assert table.snapshot == snapshot
        assert table.rows_read == (snapshot in ("none", "done"))
    assert (table.parked is not None) == (status == "parked")
    if table.parked is not None:
        goes_on = alone and snapshot in ("none", "done")
        assert (table.parked.reason, table.parked.hint, table.parked.at) == ("why", "cure", parked_at or 0)
        assert (table.parked.resumes is not None) == goes_on


@pytest.mark.parametrize("row", [PhaseColumns("sleeping", "done"), PhaseColumns("live", "half")])
def test_words_that_nobody_wrote_are_refused(row: PhaseColumns) -> None:
    with pytest.raises(ValueError, match="unknown"):
        phase_of(row)
