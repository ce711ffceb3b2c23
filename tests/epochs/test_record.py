"""What the log says of tables that an epoch could not write."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.planning.test_planner import A, Log, live, make, steps

from penstock.epochs.record import record
from penstock.epochs.table_outcome import TableOutcome
from penstock.errors import TableError
from penstock.model.offset import Offset
from penstock.model.table import DEFINITION_DOES_NOT_FIT


@pytest.mark.parametrize("differs", [True, False])
def test_a_table_that_is_read_again_by_itself_is_not_said_to_be_parked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, differs: bool
) -> None:
    planner, state = make(tmp_path, Log(Offset(300), [(50, A)]), live(A))
    plan = planner.plan_next()
    assert plan is not None and steps(plan, A)
    error = TableError(
        "It does not fit.",
        hint="Run `penstock resnapshot FILE shop.a`.",
        table=str(A),
        definition_differs=differs,
    )
    record(
        state, plan, [TableOutcome(A, parked=error)], discard=lambda _: None, rereads_max=3, merges=True
    )  # fmt: skip
    [said] = [one.getMessage() for one in caplog.records if "shop.a" in one.getMessage()]
    found = state.table(A)
    assert found is not None and bool(found.resnapshot_pending) == differs
    assert said == (
        f"shop.a is read again: {DEFINITION_DOES_NOT_FIT}"
        if differs
        else "shop.a is parked: It does not fit. Run `penstock resnapshot FILE shop.a`."
    )
