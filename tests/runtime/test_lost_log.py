"""What a pipeline does about its tables when log that it has planned was lost with a disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.phases import PARKED, READ

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.chunk import Chunk
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import EpochPlan, Move, TablePlan, TruncateTarget
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import CatchingUp, Dropped, Parked, Streaming, TableState, new_table
from penstock.runtime.lost_log import REASON, note_log
from penstock.signals.channels import TableChannel, read_to
from penstock.state import StateStore


class Log:
    """A relay log whose receiver went on from its archive at offset 100."""

    uuid = "u"
    place = "/relay"

    def __init__(self, *forks: list[Any]) -> None:
        self.facts = {"uuid": "u", "forks": list(forks)}


LOST: Any = Log([100, "a"])
BEFORE: Any = Log()


def schema(name: str) -> TableSchema:
    return TableSchema(TableId("d", name), (Column("id", "int", nullable=False),), ("id",))


def config(tmp_path: Path, **options: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "x",
            "source": {"host": "h", "user": "u", "password": "p"},
            "tables": ["d.*"],
            "sink": {"type": "iceberg", "path": str(tmp_path / "lake")},
            "state": str(tmp_path / "state"),
            **options,
        }
    )


def table(name: str, phase: Any, **fields: Any) -> TableState:
    start = Offset(4)
    made = new_table(schema(name), start, reads=False, append_only=False)
    return replace(made, phase=phase, written=True, last_epoch=3, **fields)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    """Planned up to offset 150. Epoch 4 is not applied."""
    with closing(StateStore(tmp_path / "state")) as state:
        for one in (
            table("streams", READ),
            table("behind", CatchingUp(Offset(120), Streaming(True))),
            table("parked", replace(PARKED, resumes=CatchingUp(Offset(130), Streaming(True)))),
            table("gone", Dropped(Offset(110))),
        ):
            state.put_table(one)
        steps = (TruncateTarget(None),)
        for epoch in range(1, 5):
            end = Offset(30 * epoch + 30)
            plan = EpochPlan(epoch, LogRange(Offset(end - 30), end), (TablePlan(schema("streams"), steps),))
            state.plan(plan)
            if epoch < 4:
                state.applied(plan)
        assert state.position == 150
        note_log(BEFORE, state, config(tmp_path))
        yield state


def test_tables_are_read_again_into_empty_targets(state: StateStore, tmp_path: Path) -> None:
    note_log(LOST, state, config(tmp_path))
    assert state.position == 100 and not state.has_pending() and state.applied_offset() == 100
    assert state.last_epoch() == 4, "a target may have recorded the epoch, so its number is not used again"
    for name in ("streams", "behind"):
        found = state.table(TableId("d", name))
        assert found is not None and found.resnapshot_pending == REASON and found.target_reset == "truncate"
    parked = state.table(TableId("d", "parked"))
    assert parked is not None and isinstance(parked.phase, Parked) and parked.phase.resumes is None
    assert parked.target_reset == "truncate" and parked.phase.reason == PARKED.reason
    gone = state.table(TableId("d", "gone"))
    assert gone is not None and gone.gone
    assert [one.what for one in state.history()] == [REASON] * 3


def test_it_is_done_once_and_killed_anywhere_it_is_done_again(state: StateStore, tmp_path: Path) -> None:
    note_log(LOST, state, config(tmp_path))
    before = state.revision()[-1], len(state.history())
    note_log(LOST, state, config(tmp_path))
    assert len(state.history()) == before[1]


def test_signals_of_the_lost_part_are_read_where_they_come_again(state: StateStore, tmp_path: Path) -> None:
    """The source sends them again, perhaps at smaller offsets than before."""
    nothing: Any = None
    TableChannel(TableId("d", "signals"), state, nothing, nothing, nothing)
    assert read_to(state) == 150
    note_log(LOST, state, config(tmp_path))
    assert read_to(state) == 100


def test_who_had_not_planned_the_lost_part_continues(state: StateStore, tmp_path: Path) -> None:
    later: Any = Log([150, "a"])
    note_log(later, state, config(tmp_path))
    assert state.position == 150 and state.has_pending() and not state.history()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sink": {"type": "parquet"}}, "A change log"),
        ({"schema": {"rereads": "fail"}}, "does not let tables be read again"),
        ({"snapshot": {"mode": "never"}}, "does not let tables be read again"),
    ],
)
def test_what_cannot_be_read_again_is_refused(
    state: StateStore, tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    if "sink" in options:
        options["sink"]["path"] = str(tmp_path / "log")
    with pytest.raises(ConfigError, match="was lost with a disk") as refused:
        note_log(LOST, state, config(tmp_path, **options))
    assert why in refused.value.message and "start over: `penstock reset FILE`" in refused.value.hint
    assert state.position == 150 and state.has_pending()


def test_while_targets_are_being_renamed_it_is_refused(state: StateStore, tmp_path: Path) -> None:
    moves = (Move(TableId("d", "a"), TableId("d", "b"), "id"),)
    state.plan(EpochPlan(5, LogRange(Offset(150), Offset(160)), (), moves=moves))
    with pytest.raises(ConfigError, match="being renamed"):
        note_log(LOST, state, config(tmp_path))


def test_chunks_that_were_read_are_forgotten(state: StateStore, tmp_path: Path) -> None:
    reading = new_table(schema("reads"), Offset(4), reads=True, append_only=False)
    state.put_table(reading)
    assert state.add_chunks(reading, [Chunk(reading.table, 0, None, None)])
    note_log(LOST, state, config(tmp_path))
    assert not state.chunks(reading.table)
