"""When a parked table may go on from where it stopped, and what is answered when it may not.

The state store is the real one; the log is its beginning, the sink what it says of the target.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.phases import READ

from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import CatchingUp, Dropped, Parked, ResnapshotPending, TableState
from penstock.runtime.unpark import unpark
from penstock.sinks.base import Commit, Foreign, Missing, Ours, TargetState
from penstock.state import StateStore

T = TableId("shop", "orders")
GOES_ON = CatchingUp(Offset(80), READ)
WITHOUT_LOSS = Parked(Offset(90), "Not wanted.", resumes=GOES_ON)
PARKED = TableState(
    TableSchema(T, (Column("id", "int"),), ("id",)), Offset(4), WITHOUT_LOSS, written=True, last_epoch=7
)


@dataclass
class Log:
    start: Offset = Offset(4)  # noqa: RUF009 (an int)
    held: list[Offset] = field(default_factory=list)
    after_hold: Offset | None = None
    """Where the log begins from then on."""

    def hold(self, offset: Offset) -> None:
        self.held.append(offset)

    def refresh(self) -> None:
        if self.held and self.after_hold is not None:
            self.start = self.after_hold


@dataclass
class Target:
    found: TargetState

    def open(self, table: TableId) -> TargetState:
        return self.found


OURS = Ours(Commit("p", 7), ("id",), empty=False)


@dataclass
class Case:
    folder: Path

    def unpark(
        self, table: TableState | None, log: Log, target: TargetState | None
    ) -> tuple[dict[str, Any], TableState]:
        state = StateStore(self.folder)
        if table is not None:
            state.put_table(table)
        sink = None if target is None else Target(target)
        answer = unpark(state, log, sink, T, protect_log=log.hold)  # type: ignore[arg-type]
        found = state.table(T)
        assert found is not None
        return answer, found


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_table_that_lost_nothing_goes_on_from_its_own_offset(case: Case) -> None:
    answer, table = case.unpark(PARKED, Log(), OURS)
    assert answer == {"ok": True, "action": "continue", "offset": 80}
    assert table == replace(PARKED, phase=GOES_ON)
    assert table.status == "live" and not table.planned


def test_a_table_goes_on_at_a_sink_of_which_nothing_remains(case: Case) -> None:
    answer, table = case.unpark(PARKED, Log(), None)
    assert answer == {"ok": True, "action": "continue", "offset": 80}
    assert table == replace(PARKED, phase=GOES_ON)


def test_the_log_is_held_before_it_is_looked_at(case: Case) -> None:
    log = Log()
    assert case.unpark(PARKED, log, OURS)[0]["action"] == "continue"
    assert log.held == [80]
    late = Log(after_hold=Offset(81))  # retention was just at work
    answer, _ = case.unpark(PARKED, late, OURS)
    assert answer["action"] == "resnapshot" and "begins at offset 81" in answer["reason"]


@pytest.mark.parametrize(
    ("table", "log", "target", "why"),
    [
        (replace(PARKED, phase=replace(WITHOUT_LOSS, resumes=None)), Log(), OURS, "cannot take the changes"),
        (PARKED, Log(Offset(81)), OURS, "the relay log begins at offset 81"),
        (PARKED, Log(), Missing(), "its target is gone"),
    ],
)
def test_a_table_that_lost_something_is_read_again(
    case: Case, table: TableState, log: Log, target: TargetState, why: str
) -> None:
    answer, found = case.unpark(table, log, target)
    assert answer["action"] == "resnapshot" and why in answer["reason"]
    assert found.phase == ResnapshotPending(f"unparked; {answer['reason']}", table.parked)


@pytest.mark.parametrize(
    ("table", "target", "message"),
    [
        (None, OURS, "The pipeline does not capture"),
        (replace(PARKED, phase=Dropped(Offset(90))), OURS, "does not exist at the source any more"),
        (PARKED, Foreign("lake.shop.orders", "the table of pipeline x", "Name another."), "is taken"),
    ],
)
def test_what_keeps_a_table_from_coming_back_is_said_and_it_stays_as_it_is(
    case: Case, table: TableState | None, target: TargetState, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        case.unpark(table, Log(), target)
    assert StateStore(case.folder).table(T) == table


def test_a_table_that_is_not_parked_or_comes_back_by_itself_is_left_to_itself(case: Case) -> None:
    assert case.unpark(replace(PARKED, phase=READ), Log(), OURS)[0]["action"] == "none"
    answer, _ = case.unpark(PARKED.read_again("a partition went"), Log(), OURS)
    assert (answer["action"], answer["reason"]) == ("resnapshot", "a partition went")
