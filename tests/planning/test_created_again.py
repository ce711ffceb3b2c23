"""Plans for a table that is dropped and created again."""

from __future__ import annotations

from pathlib import Path

from tests.planning.test_planner import A, Log, done, live, make, schema, steps

from penstock.model.offset import Offset
from penstock.model.plan import TruncateTarget
from penstock.model.schema_change import TableEffect


def test_rows_of_a_table_that_was_created_again_end_when_the_new_one_began(tmp_path: Path) -> None:
    effects = [
        TableEffect(A, dropped=True, voids="DROP TABLE"),
        TableEffect(A, created=schema(A, "id", "z"), voids="CREATE TABLE"),
    ]
    log = Log(Offset(300), [(50, A), (200, A)], {100: effects})
    planner, state = make(tmp_path, log, live(A))
    done(state, planner.plan_next())
    empties = steps(planner.plan_next(), A)[0]
    assert isinstance(empties, TruncateTarget) and empties.timestamp_us == log.commit_time_us_at(Offset(100))
