"""The end of a source's log as a goal, when another server is followed before the relay log has reached
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.planning.test_planner import A, live

from penstock.errors import TransientError
from penstock.model.offset import UNKNOWN_POSITION, Offset, SourcePosition
from penstock.model.table import ResnapshotPending
from penstock.planning import resnapshots
from penstock.planning.source_end import SourceEnd
from penstock.relaylog.segment_format import position
from penstock.state import StateStore


@dataclass
class Servers:
    """A source, and a relay log of it. The relay log is at `at`."""

    source_uuid: str = "one"
    end: dict[str, SourcePosition] = field(default_factory=dict)
    at: SourcePosition = UNKNOWN_POSITION
    answers: bool = True

    def end_position(self) -> SourcePosition:
        if not self.answers:
            raise TransientError("It does not answer.")
        return self.end[self.source_uuid]

    def refresh(self) -> Offset:
        return Offset(0)

    def reached(self, place: SourcePosition) -> bool:
        return self.at.order >= place.order


ENDS = {"one": position("binlog.000900", 50), "two": position("binlog.000003", 70)}


def test_a_position_of_another_server_is_no_goal() -> None:
    servers = Servers(end=ENDS)
    goal = SourceEnd(servers, cast(Any, servers))
    servers.end = {**ENDS, "one": position("binlog.000999", 4)}
    assert goal.position() == ENDS["one"], "what comes later does not count"
    servers.source_uuid, servers.answers = "two", False
    with pytest.raises(TransientError):
        goal.position()
    servers.answers = True
    assert goal.position() == ENDS["two"]


def test_a_resnapshot_does_not_wait_for_a_place_in_the_log_of_the_server_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, state, begun = Servers(end=ENDS), StateStore(tmp_path), list[Any]()
    state.put_table(live(A, phase=ResnapshotPending("asked for")))
    monkeypatch.setattr(resnapshots, "restart_table", lambda *args, **more: begun.append(args[3]))
    nothing: Any = None
    pending = resnapshots.Resnapshots(
        state, cast(Any, servers), cast(Any, servers), nothing, nothing, wait=nothing, renew=lambda: None
    )
    pending.work()
    servers.source_uuid, servers.at = "two", ENDS["two"]
    pending.work()
    assert begun == [A]
