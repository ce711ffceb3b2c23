"""A table that catches up, and was dropped in the part of the log that the others have passed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.phases import behind
from tests.planning.test_planner import A, B, Log, done, live, make, schema

from penstock.epochs.record import record
from penstock.epochs.table_outcome import TableOutcome
from penstock.model.offset import Offset
from penstock.model.plan import DropTarget
from penstock.model.schema_change import TableEffect
from penstock.model.table import Dropped, ResnapshotPending, TableState
from penstock.planning.planner import DROPPED_BEHIND

DROP = TableEffect(A, dropped=True, what="dropped", voids="DROP TABLE")
AGAIN = TableEffect(A, created=schema(A, "k", "x"), voids="CREATE TABLE")


@pytest.mark.parametrize("again", [AGAIN, TableEffect(A, created=schema(A, "id"), fills=True, was=B)])
def test_a_table_that_was_dropped_and_made_again_while_it_was_parked_is_read(
    tmp_path: Path, again: TableEffect
) -> None:
    assert _caught_up(tmp_path, {100: [DROP], 150: [again]}).phase == ResnapshotPending(DROPPED_BEHIND)


def test_a_table_whose_name_returns_after_the_position_of_the_others_is_dropped_until_then(
    tmp_path: Path,
) -> None:
    assert isinstance(_caught_up(tmp_path, {300: [DROP]}).phase, Dropped)


def test_a_target_that_was_dropped_with_its_table_is_made_when_the_table_is_read_again(
    tmp_path: Path,
) -> None:
    log = Log(Offset(300), [(50, A)], {100: [DROP], 150: [AGAIN]})
    planner, state = make(tmp_path, log, live(A, phase=behind(40)), dropped_tables="drop")
    state.advance(Offset(300))
    plan = planner.plan_next() or planner.plan_next()
    assert plan is not None and plan.tables[0].steps[-1] == DropTarget()
    dropped = TableOutcome(A, dropped=True, wrote=True, written=True)
    record(state, plan, [dropped], discard=lambda staged: None, rereads_max=0, merges=True)
    table = state.table(A)
    assert table is not None and table.phase == ResnapshotPending(DROPPED_BEHIND)
    assert (table.last_epoch, table.written) == (0, False)


def _caught_up(folder: Path, ddl: dict[int, list[TableEffect]]) -> TableState:
    log = Log(Offset(300), [(50, A), (200, A)], ddl)
    planner, state = make(folder, log, live(A, phase=behind(40)))
    state.advance(Offset(300))
    for _ in range(6):
        if (plan := planner.plan_next()) is not None:
            done(state, plan)
    table = state.table(A)
    assert table is not None
    return table
