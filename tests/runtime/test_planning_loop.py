"""When the planner is asked: nothing that has happened is overlooked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tests.phases import behind

from penstock import config as configuration
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.relaylog.reader import RelayLog
from penstock.runtime.planning_loop import (
    BUSY_SECONDS,
    IDLE_SECONDS,
    QUIET_TICK_SECONDS,
    TICK_SECONDS,
    LoopPace,
    Planning,
    Renewal,
    planner_limits,
)
from penstock.state import StateStore

ORDERS = TableId("shop", "orders")
SCHEMA = TableSchema(ORDERS, (Column("id", "int", nullable=False),), ("id",))


class Log:
    def __init__(self) -> None:
        self.end = Offset(100)
        self.entries = 1

    def newest(self) -> tuple[Offset, int]:
        return self.end, self.entries

    def refresh(self) -> Offset:
        return self.end

    def stamp(self) -> tuple[int, int]:
        return 1, self.end


class Planner:
    def __init__(self) -> None:
        self.asked = 0

    def plan_next(self, cuts: Iterable[Offset] = ()) -> Any:
        self.asked += 1
        return None


def test_the_planner_is_asked_again_only_after_something_has_changed(tmp_path: Path) -> None:
    state, log, planner = StateStore(tmp_path), Log(), Planner()
    asks = Planning(state, cast(RelayLog, log), planner)
    for _ in range(3):
        assert not asks.next([])
    assert planner.asked == 1
    log.end = Offset(200)
    asks.next([])
    state.set_meta("anything", "new")
    asks.next([])
    other = StateStore(tmp_path)
    other.set_meta("anything", "newer")
    asks.next([])
    assert planner.asked == 4
    asks.next([Offset(150)])
    assert planner.asked == 5
    log.entries += 1  # a position of an idle source adds no bytes, and yet chunks may wait for it
    asks.next([])
    assert planner.asked == 6


def test_a_table_that_catches_up_is_looked_at_every_time(tmp_path: Path) -> None:
    state, planner = StateStore(tmp_path), Planner()
    state.put_table(TableState(SCHEMA, Offset(4), behind(50)))
    asks = Planning(state, cast(RelayLog, Log()), planner)
    for _ in range(3):
        asks.next([])
    assert planner.asked == 3


def test_attention_is_full_after_anything_has_happened_and_never_ceases(
    tmp_path: Path, monkeypatch: Any
) -> None:
    now = 1000.0
    monkeypatch.setattr("penstock.runtime.planning_loop.time.monotonic", lambda: now)
    state, log = StateStore(tmp_path), Log()
    pace = LoopPace(state, cast(RelayLog, log), interval_s=1)
    assert pace.should_look()
    now += BUSY_SECONDS + 1
    assert pace.should_look()
    now += 0.02
    assert not pace.should_look() and pace.tick == QUIET_TICK_SECONDS
    log.end = Offset(101)
    assert pace.should_look() and pace.tick == TICK_SECONDS
    now += BUSY_SECONDS + 1
    assert pace.should_look() and not pace.should_look()
    state.set_meta("a", "b")
    assert pace.should_look()
    now += BUSY_SECONDS + 1
    assert pace.should_look() and not pace.should_look()
    now += 0.3
    assert pace.should_look()


def test_only_a_source_that_is_idle_is_connected_to_anew(monkeypatch: Any) -> None:
    now, times = 1000.0, []
    monkeypatch.setattr("penstock.runtime.planning_loop.time.monotonic", lambda: now)
    log = Log()
    renewal = Renewal(cast(RelayLog, log), lambda: times.append(now))
    renewal.work()
    renewal.ask()
    log.end = Offset(101)
    renewal.work()
    now += 2 * IDLE_SECONDS
    renewal.work()
    assert not times, "the log went on by itself"
    renewal.ask()
    renewal.work()
    now += 0.6 * IDLE_SECONDS
    renewal.ask()
    renewal.work()
    assert not times
    now += 0.6 * IDLE_SECONDS
    renewal.work()
    renewal.work()
    assert times == [now], "asked for again it is not put off"
    now += 10
    renewal.work()
    assert len(times) == 1


def test_the_limits_of_the_planner_are_those_of_the_pipeline_file() -> None:
    config = configuration.parse(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": "state",
         "sink": {"type": "console"}, "snapshot": {"window_bytes_max": "7MiB", "append_bytes_max": "6MiB"},
         "epoch": {"bytes_max": "8MiB", "task_bytes": "9MiB", "snapshot_rows_max": 10}}
    )  # fmt: skip
    limits = planner_limits(config)
    assert limits.placement.window_bytes_max == 7 * 1024**2
    assert limits.placement.append_bytes_max == 6 * 1024**2
    assert limits.snapshot_rows_max == 10
    assert limits.epoch_bytes_max == 8 * 1024**2 and limits.task_bytes == 9 * 1024**2
