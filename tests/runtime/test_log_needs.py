"""What a pipeline may still read stays in the relay log. The segments are real; all that may go goes now."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.phases import PARKED, READ, READING, SPLITTING, behind
from tests.relaylog.conftest import SPAN_SIZE, TABLES, Received, received  # noqa: F401 (a fixture)

from penstock._core import RangeDecoder
from penstock.config import RelayLogConfig, SchemaConfig
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import ApplyEvents, EpochPlan, PlaceChunks, Scan, TablePlan
from penstock.model.shards import Shards
from penstock.model.table import TableState
from penstock.planning.planner import Planner, PlannerLimits
from penstock.planning.policy import Policies
from penstock.relaylog import retention
from penstock.relaylog.consumers import Consumer
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import list_segments
from penstock.runtime.log_needs import needed
from penstock.snapshot.placement import PlacementLimits
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow, MySqlWindows
from penstock.state import StateStore

A = TABLES[0]
AT_ONCE = RelayLogConfig(keep_age=0, disk_free_min=0, span_size=SPAN_SIZE)
EPOCH_BYTES = 100_000
"""More than a segment."""


class NoStatements:
    def effects(self, statement: object, live: object) -> list[object]:
        return []


@dataclass
class Case:
    folder: Path
    log: RelayLog
    state: StateStore
    consumer: Consumer
    table: TableState

    def plan(self) -> EpochPlan | None:
        planner = Planner(
            self.state,
            self.log,
            NoStatements(),  # type: ignore[arg-type]
            windows=MySqlWindows(),
            policies=Policies(SchemaConfig(), append_only=False, reads=True, shards=Shards()),
            discard=lambda staged: None,
            limits=PlannerLimits(
                EPOCH_BYTES, PlacementLimits(1 << 30, 1 << 30), task_bytes=1 << 26, snapshot_rows_max=1000
            ),
        )
        return planner.plan_next() or planner.plan_next()

    def retain(self) -> Offset:
        """The pipeline says what it needs, and all else goes. Where the log begins then."""
        self.consumer.needs(needed(self.state))
        retention.apply(self.folder, AT_ONCE)
        return list_segments(self.folder)[0].base


@pytest.fixture
def case(received: Received, tmp_path: Path) -> Case:  # noqa: F811
    folder = tmp_path / "relay"
    shutil.copytree(received.folder, folder)
    shutil.rmtree(folder / "consumers", ignore_errors=True)
    for path in folder.iterdir():
        os.utime(path, (time.time() - 86_400,) * 2)
    log, state = RelayLog.open(folder), StateStore(tmp_path / "state")
    state.advance(log.end)
    table = TableState(received.schemas[A], log.start, READ, written=True, last_epoch=1)
    state.put_table(table)
    return Case(folder, log, state, Consumer(folder, "shop", needs=Offset(0)), table)


def decode(case: Case, plan: EpochPlan) -> int:
    """Rows of the plan's events."""
    splits = [s for t in plan.tables for one in t.steps if isinstance(one, ApplyEvents) for s in one.splits]
    return sum(
        batch.num_rows
        for split in splits
        for batch in RangeDecoder(
            case.table.schema.to_json(), split.path, split.base, split.start, split.end,
            preamble=split.preamble,
        )
    )  # fmt: skip


def test_the_plan_of_a_table_that_catches_up_keeps_its_log_until_it_is_applied(case: Case) -> None:
    case.state.put_table(replace(case.table, phase=behind(case.log.start)))
    rows: list[int] = []
    first = begins = list_segments(case.folder)[0].base
    while (plan := case.plan()) is not None:
        after = case.state.table(A)
        assert after is not None
        assert after.catches_up_from == plan.range.end, "the state is at the plan's end already"
        begins = case.retain()
        rows.append(decode(case, plan))
        case.state.applied(plan)
    assert len(rows) > 2 and all(rows) and begins > first


def test_what_a_plan_reads_before_its_range_stays_also_when_its_table_is_parked_meanwhile(case: Case) -> None:
    segments = list_segments(case.folder)
    end, window = case.log.end, case.log.cut(segments[1].base, 1)
    reading = replace(case.table, start=case.log.start, phase=READING)
    case.state.put_table(reading)
    chunk = Chunk(A, 0, None, None)
    marks = MySqlWindow("", BinlogPosition("binlog.000001", 4)).watermarks
    staged = StagedChunk(chunk, "1", "/nowhere", 1, 1, "0", 1, marks, "server")
    scan = Scan(tuple(case.log.splits(LogRange(window, end), A, bytes_aim=1 << 40)), None)
    place = PlaceChunks((staged,), (scan,), "merge")
    case.state.plan(EpochPlan(1, LogRange(end, end), (TablePlan(reading.schema, (place,), reading.start),)))
    case.state.park(A, offset=end, reason="its rows cannot be read", hint="")
    assert case.retain() == segments[1].base
    [pending] = case.state.pending()
    assert all(Path(split.path).exists() for split in scan.splits)
    case.state.applied(pending)
    assert case.retain() == segments[-1].base


@pytest.mark.parametrize(
    "change",
    [
        lambda table, at: replace(table, start=at, phase=SPLITTING),
        lambda table, at: replace(table, start=at, phase=READING),
        lambda table, at: replace(table, phase=behind(at)),
    ],
    ids=["splitting", "reading", "catching up"],
)
def test_log_stays_for_tables_that_are_read_or_catch_up(
    case: Case, change: Callable[[TableState, Offset], TableState]
) -> None:
    segments = list_segments(case.folder)
    case.state.put_table(change(case.table, Offset(segments[2].base + 1)))
    assert case.retain() == segments[2].base
    case.state.put_table(replace(case.table, phase=PARKED))
    assert case.retain() == segments[-1].base


def test_a_pipeline_that_has_planned_nothing_yet_keeps_everything(case: Case, tmp_path: Path) -> None:
    first = list_segments(case.folder)[0].base
    case.state.set_meta("position", "")
    assert case.retain() == first
