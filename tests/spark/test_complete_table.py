"""The table of complete targets, in a run that takes less than its interval."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.phases import READING
from tests.planning.test_planner import A, B, live

from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import position
from penstock.sinks.collected import batches_of
from penstock.spark.complete_table import CompleteTable
from penstock.state import StateStore

COMPLETE = TableId("penstock", "complete")


@dataclass
class Place:
    """A source, its relay log, and a target."""

    time_us: int = 1_000_000
    end: int = 50
    rows: list[dict[str, Any]] = field(default_factory=list)

    def clock_us(self) -> int:
        return self.time_us

    def end_position(self) -> SourcePosition:
        self.time_us += 1_000_000
        return position("binlog.000001", self.end)

    def refresh(self) -> Offset:
        return Offset(self.end)

    def offset_reaching(self, goal: SourcePosition) -> Offset:
        return Offset(goal.order[-1])

    def create(self, *_: Any) -> None:
        """It is there."""

    def merge(self, table: TableId, rows: Any, *_: Any) -> bool:
        assert table == COMPLETE
        self.rows += [one for batch in batches_of(rows) for one in batch.to_pylist()]
        return True


def ran(folder: Path, patch: pytest.MonkeyPatch, place: Place, applied: int, meanwhile: int) -> None:
    """A run that has applied the log up to `applied`, while the source went on to `meanwhile`."""
    patch.setattr(RelayLog, "open", lambda _: place)
    with closing(StateStore(folder)) as state:
        state.put_table(live(A))
        state.put_table(live(B, phase=READING))
        state.advance(Offset(applied))
        stub: Any = place
        table = CompleteTable(stub, stub, state, stub, stub, COMPLETE, seconds=3600)
        table.start()
        while place.time_us < 2_000_000:
            assert table._thread is not None and table._thread.is_alive()
        place.end = meanwhile
        table.stop()


@pytest.mark.parametrize(("meanwhile", "until_s"), [(50, 2), (90, 1)])
def test_it_is_written_at_the_end_with_what_the_source_had_then_or_at_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: int, until_s: int
) -> None:
    place = Place()
    ran(tmp_path, monkeypatch, place, 50, meanwhile)
    [row] = place.rows
    assert row["table"] == str(A), "the other one is being read"
    assert row["complete_until"].timestamp() == until_s and row["offset"] == 50


def test_it_is_not_written_if_the_log_of_the_beginning_is_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place()
    ran(tmp_path, monkeypatch, place, 40, 90)
    assert place.rows == []
