from __future__ import annotations

from dataclasses import replace

import pytest
from tests.phases import DROPPED, LOG_ONLY, PARKED, READ, READING, REMOVED, SPLITTING, behind

from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import CatchingUp, Parked, Phase, Reading, ResnapshotPending, Streaming, TableState

T = TableId("shop", "t")
TABLE = TableState(TableSchema(T, (Column("id", "int"),), ("id",)), Offset(4), READ)
PENDING = ResnapshotPending("its rows are not known")


def test_a_table_that_was_unparked_has_epochs_of_its_own_until_it_is_to_be_read_again() -> None:
    table = replace(TABLE, phase=behind(8))
    assert table.catches_up_from == 8 and not table.planned
    again = table.read_again("its rows are not known")
    assert again.phase == PENDING and again.catches_up_from is None


@pytest.mark.parametrize("phase", [PARKED, DROPPED, REMOVED, PENDING])
def test_epochs_leave_out_a_table_that_is_not_followed(phase: Phase) -> None:
    """Log would be kept for it, and looked for after it is gone."""
    table = replace(TABLE, phase=phase)
    assert not table.planned and table.catches_up_from is None and not table.complete


@pytest.mark.parametrize("phase", [DROPPED, REMOVED])
def test_a_table_that_is_gone_is_not_read_again(phase: Phase) -> None:
    table = replace(TABLE, phase=phase)
    assert table.read_again("a partition went") == table


def test_a_parked_table_reads_as_parked_until_its_resnapshot_begins() -> None:
    table = replace(TABLE, phase=PARKED).read_again("asked for")
    assert table.phase == ResnapshotPending("asked for", PARKED)
    assert (table.status, table.parked, table.resnapshot_pending) == ("parked", PARKED, "asked for")
    assert table.read_again("asked again").phase == ResnapshotPending("asked again", PARKED)


@pytest.mark.parametrize("then", [LOG_ONLY, READ])
def test_a_parked_table_resumes_as_what_it_was(then: Reading | Streaming) -> None:
    parked = Parked(Offset(9), "No.", "Do.", CatchingUp(Offset(7), then))
    for phase in (then, CatchingUp(Offset(5), then)):
        table = replace(TABLE, phase=phase)
        assert table.park(Offset(9), "No.", "Do.", Offset(7)) == replace(table, phase=parked)


@pytest.mark.parametrize("phase", [READING, SPLITTING, CatchingUp(Offset(5), READING), PENDING])
def test_a_table_whose_rows_are_not_all_read_does_not_resume(phase: Phase) -> None:
    parked = replace(TABLE, phase=phase).park(Offset(9), "No.", "Do.", Offset(7))
    assert parked.phase == Parked(Offset(9), "No.", "Do.")


def test_a_target_is_complete_if_all_rows_were_read_and_nothing_comes_before_the_next_write() -> None:
    assert TABLE.complete and replace(TABLE, phase=behind(8)).complete
    assert not replace(TABLE, phase=READING).complete
    assert not replace(TABLE, replaces=Offset(9)).complete
    assert not replace(TABLE, target_reset="evolve").complete
