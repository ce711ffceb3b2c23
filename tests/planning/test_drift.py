"""Definitions of tables that are being read: those that no statement of the log explains, and those that are
later than a statement."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.phases import READING
from tests.planning.test_planner import RENAME, A, B, Log, live, make

from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.planning.drift import Drift
from penstock.relaylog.index import Statement
from penstock.relaylog.segment_format import position
from penstock.state import StateStore


@dataclass
class Servers:
    """A source whose log has reached `end`, and a relay log of it."""

    end: int = 50
    source_uuid: str = "one"

    def end_position(self) -> SourcePosition:
        return position("binlog.000001", self.end)

    def offset_reaching(self, goal: SourcePosition) -> Offset | None:
        return Offset(goal.order[-1])


def test_it_is_read_again_once_the_log_of_that_moment_is_planned(tmp_path: Path) -> None:
    servers = Servers()
    with closing(StateStore(tmp_path)) as state:
        state.advance(Offset(4))
        state.put_table(live(A, phase=READING))
        drift = Drift(state, cast(Any, servers), servers, 3)
        misfits = [live(A, phase=READING)]
        drift.work(misfits)
        servers.end = 90
        state.advance(Offset(49))
        drift.work(misfits)
        assert state.tables()[A].status == "live", "a statement may come up to offset 50"
        state.advance(Offset(50))
        drift.work(misfits)
        table = state.tables()[A]
        assert "sql_log_bin" in table.resnapshot_pending and table.parked is not None


@pytest.mark.parametrize("change", [{"start": Offset(20)}, {"version": 2}])
def test_it_is_left_alone_if_a_statement_came_or_another_snapshot_began(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    servers = Servers()
    with closing(StateStore(tmp_path)) as state:
        state.advance(Offset(4))
        state.put_table(live(A, phase=READING))
        state.put_table(live(B, phase=READING))
        drift = Drift(state, cast(Any, servers), servers, 3)
        misfits = [live(A, phase=READING)]
        drift.work(misfits)
        now = state.tables()[A]
        if "version" in change:
            now = replace(now, schema=replace(now.schema, version=2))
        else:
            now = replace(now, **change)
        state.put_table(now)
        state.advance(Offset(60))
        drift.work(misfits)
        drift.work(misfits)
        assert state.tables()[A] == now


def test_it_stays_parked_if_reading_it_again_does_not_help(tmp_path: Path) -> None:
    servers = Servers()
    with closing(StateStore(tmp_path)) as state:
        state.advance(Offset(90))
        drift = Drift(state, cast(Any, servers), servers, 2)
        for reads in range(3):
            state.put_table(live(A, phase=READING))
            drift.work([live(A, phase=READING)])
            assert bool(state.tables()[A].resnapshot_pending) == (reads < 2)
        assert state.tables()[A].status == "parked"


def test_the_definition_of_a_table_with_a_later_start_is_not_taken_for_that_at_a_statement(
    tmp_path: Path,
) -> None:
    asked: list[set[TableId]] = []

    class Asked(Log):
        def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
            asked.append(set(live))
            return super().effects(statement, live)

    log = Asked(Offset(300), [], {100: [RENAME], 200: [RENAME]})
    planner, _ = make(tmp_path, log, live(A, start=Offset(150)), live(B))
    planner.plan_next()
    assert asked == [{B}, {A, B}], "A was read again, with the definition of offset 150"
