"""The planner of a pipeline: what it is made of, and when it is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.config import PipelineConfig
from penstock.model.offset import Offset
from penstock.model.plan import EpochPlan
from penstock.model.schema import TableId
from penstock.model.table import is_catching_up
from penstock.planning.planner import Planner, PlannerLimits
from penstock.planning.policy import Policies
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Sink, TableSink
from penstock.snapshot import staging
from penstock.snapshot.placement import PlacementLimits
from penstock.sources.base import Source
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

APPEND_BYTES_MAX = 128 * 1024**2
"""Log of a table from its start on. While there is no more, its first chunks are appended to the empty
target, and each is compared with all of that log."""


AWAKE_SECONDS = 2.0
"""How long the loop looks at each tick after something has happened: an idle tick costs CPU."""
TICK_SECONDS = 0.02
RESTING_SECONDS = 0.2
RESTING_TICK_SECONDS = 0.05
"""Then it looks at everything each `RESTING_SECONDS`, and asks at each of these ticks whether something has
happened."""
IDLE_SECONDS = 0.3
"""Without a change: the source may rest for longer."""


class Attention:
    """How often the loop of a pipeline looks at everything: at each tick for a while after something has
    happened, and five times a second otherwise. Whether something happens costs one call of the system, and
    so does each tick: most pipelines are idle most of the time."""

    def __init__(self, state: StateStore, log: RelayLog) -> None:
        self._state = state
        self._log = log
        self._at: tuple[Any, ...] = ()
        self._awake_until = 0.0
        self._looked = 0.0

    def should_look(self) -> bool:
        """Whether to look now."""
        now = time.monotonic()
        at = (self._log.stamp(), self._state.own_changes)
        if at != self._at:
            self._at, self._awake_until = at, now + AWAKE_SECONDS
        if now >= self._awake_until and now < self._looked + RESTING_SECONDS:
            return False
        self._looked = now
        return True

    @property
    def tick(self) -> float:
        """Seconds until it is asked again."""
        return TICK_SECONDS if time.monotonic() < self._awake_until else RESTING_TICK_SECONDS


class Renewal:
    """Where the log's end must move on, also while the source is idle: a new connection moves it. A source
    that is not idle does so by itself, and goes on being read without a pause."""

    def __init__(self, log: RelayLog, renew: Callable[[], None]) -> None:
        """`renew`: makes the receiver connect anew."""
        self._log = log
        self._renew = renew
        self._end = Offset(0)
        self._renew_at: float | None = None

    def ask(self) -> None:
        self._end = self._log.refresh()
        self._renew_at = self._renew_at or time.monotonic() + IDLE_SECONDS

    def work(self) -> None:
        if self._renew_at is None:
            return
        if self._log.refresh() <= self._end:
            if time.monotonic() < self._renew_at:
                return
            self._renew()
        self._renew_at = None


class Asks(Protocol):
    def plan_next(self, cuts: Iterable[Offset] = ()) -> EpochPlan | None: ...


class Planning:
    """Asks the planner unless it has found nothing to do, and neither the log nor the state has changed
    since: what it answers follows from these two alone."""

    def __init__(self, state: StateStore, log: RelayLog, planner: Asks) -> None:
        self._state = state
        self._log = log
        self._planner = planner
        self._nothing_at: tuple[Any, ...] | None = None

    def next(self, cuts: list[Offset]) -> bool:
        """Whether an epoch was planned."""
        there = (self._state.seen(), self._log.refresh())
        if there == self._nothing_at and not cuts:
            return False
        planned = self._planner.plan_next(cuts) is not None
        # Of tables that catch up the planner looks at every other call.
        waits = self._state.tables_that(is_catching_up)
        self._nothing_at = None if planned or waits else there
        return planned


def planner_limits(config: PipelineConfig) -> PlannerLimits:
    placement = PlacementLimits(
        window_bytes_max=config.snapshot.window_bytes_max, append_bytes_max=APPEND_BYTES_MAX
    )
    return PlannerLimits(config.epoch.bytes_max, placement, config.epoch.task_bytes)


def _no_identity(table: TableId) -> None:
    """Of sinks whose targets stay where they are."""


def make_planner(
    state: StateStore,
    log: RelayLog,
    source: Source,
    config: PipelineConfig,
    captured: TableFilter,
    sink: Sink,
    *,
    applies_cascades: bool,
) -> Planner:
    statements = source.statements(
        captured,
        log,
        types=config.types,
        parks_cascades=config.cascades == "park" and not source.catalog.logs_cascades,
        keeps_keys=applies_cascades,
    )
    return Planner(
        state,
        log,
        statements,
        windows=source.windows,
        policies=Policies.of(config, append_only=not isinstance(sink, TableSink)),
        discard=staging.discard,
        limits=planner_limits(config),
        identify=sink.identity if isinstance(sink, TableSink) else _no_identity,
        cascades=config.types if applies_cascades else None,
    )
