"""Decides when the planner of a pipeline is asked, and creates the planner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.config import PipelineConfig
from penstock.model.history import History
from penstock.model.offset import Offset
from penstock.model.plan import EpochPlan
from penstock.model.table import is_catching_up
from penstock.planning.planner import Planner, PlannerLimits, Targets
from penstock.planning.policy import Policies
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import LogSink, Sink, TableSink
from penstock.snapshot.placement import PlacementLimits
from penstock.snapshot.staging import Staging
from penstock.sources.base import Source
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

BUSY_SECONDS = 2.0
"""How long the loop looks at everything at each tick after something has happened. Changes come in bursts, so
more is likely to happen soon."""
TICK_SECONDS = 0.02
"""Tick of the loop in that time: short, because it adds to the latency of each epoch."""
TICKS_PER_INTERVAL = 4
"""`epoch.interval` has at least so many ticks. Users who want epochs within milliseconds pay for them."""
TICK_SECONDS_MIN = 0.001
"""Shortest tick. A tick costs some 10 microseconds."""
QUIET_LOOK_SECONDS = 0.2
"""How often the loop looks at everything when nothing has happened for a while. Commands and signals wait
about so long."""
QUIET_TICK_SECONDS = 0.05
"""Tick of the loop in that time. At each tick it checks whether something has happened; each tick costs
CPU."""
IDLE_SECONDS = 0.3
"""How long the source may be silent before a transaction end is forced. A busy source sends one earlier."""


class LoopPace:
    """Decides how often the pipeline's loop looks at everything: at each tick for a while after something
    has happened, and five times a second otherwise. Checking whether something has happened costs one
    system call. Most pipelines are idle most of the time, so this saves CPU."""

    def __init__(self, state: StateStore, log: RelayLog, *, interval_s: float) -> None:
        """`interval_s`: see `config.EpochConfig.interval`."""
        self._state = state
        self._log = log
        self._tick = min(TICK_SECONDS, max(TICK_SECONDS_MIN, interval_s / TICKS_PER_INTERVAL))
        self._at: tuple[Any, ...] = ()
        self._busy_until = 0.0
        self._looked = 0.0

    def should_look(self) -> bool:
        """Whether to look at everything now."""
        now = time.monotonic()
        at = (self._log.stamp(), self._state.own_changes)
        if at != self._at:
            self._at, self._busy_until = at, now + BUSY_SECONDS
        if now >= self._busy_until and now < self._looked + QUIET_LOOK_SECONDS:
            return False
        self._looked = now
        return True

    @property
    def tick(self) -> float:
        """Seconds until the next call of `should_look`."""
        return self._tick if time.monotonic() < self._busy_until else QUIET_TICK_SECONDS


class Renewal:
    """Moves the end of the log forward, also while the source is idle, by making the receiver reconnect. If
    the source is not idle, its log grows anyway, and nothing interrupts the receiver."""

    def __init__(self, log: RelayLog, renew: Callable[[], None]) -> None:
        """`renew` makes the receiver reconnect."""
        self._log = log
        self._renew = renew
        self._end = Offset(0)
        self._renew_at: float | None = None

    def ask(self) -> None:
        """Requests that the end of the log moves."""
        self._end = self._log.refresh()
        self._renew_at = self._renew_at or time.monotonic() + IDLE_SECONDS

    def work(self) -> None:
        """Called regularly: reconnects if the log has not grown in the meantime."""
        if self._renew_at is None:
            return
        if self._log.refresh() <= self._end:
            if time.monotonic() < self._renew_at:
                return
            self._renew()
        self._renew_at = None


class PlansNext(Protocol):
    """The part of the planner that is called here."""

    def plan_next(self, cuts: Iterable[Offset] = ()) -> EpochPlan | None: ...


class Planning:
    """Calls the planner, unless it last found nothing to do and neither the log nor the state has changed
    since. Its answer depends only on these two."""

    def __init__(self, state: StateStore, log: RelayLog, planner: PlansNext) -> None:
        self._state = state
        self._log = log
        self._planner = planner
        self._nothing_at: tuple[Any, ...] | None = None

    def next(self, cuts: list[Offset]) -> bool:
        """Returns whether an epoch was planned."""
        revision = self._state.revision()
        self._log.refresh()
        reached = (revision, self._log.newest())
        if reached == self._nothing_at and not cuts:
            return False
        planned = self._planner.plan_next(cuts) is not None
        # While tables catch up, the planner looks at the other tables in every other call only.
        waits = self._state.tables_that(is_catching_up)
        self._nothing_at = None if planned or waits else reached
        return planned


def planner_limits(config: PipelineConfig) -> PlannerLimits:
    """The planner's limits from the pipeline file."""
    placement = PlacementLimits(
        window_bytes_max=config.snapshot.window_bytes_max, append_bytes_max=config.snapshot.append_bytes_max
    )
    epoch = config.epoch
    return PlannerLimits(
        epoch.bytes_max, placement, task_bytes=epoch.task_bytes, snapshot_rows_max=epoch.snapshot_rows_max
    )


def make_planner(
    state: StateStore,
    log: RelayLog,
    source: Source,
    config: PipelineConfig,
    captured: TableFilter,
    sink: Sink | None,
    staging: Staging,
    *,
    applies_cascades: bool,
) -> Planner:
    """Creates the planner of a pipeline. `sink` None: the changes are rows of a query."""
    statements = source.statements(
        captured,
        log,
        types=config.types,
        parks_cascades=config.cascades == "park" and not source.catalog.logs_cascades,
        with_foreign_keys=applies_cascades,
    )
    return Planner(
        state,
        log,
        statements,
        windows=source.windows,
        policies=Policies.of(
            config, append_only=not isinstance(sink, TableSink), add_key=source.catalog.add_key
        ),
        discard=staging.discard,
        limits=planner_limits(config),
        targets=Targets(
            identify=sink.identity if isinstance(sink, TableSink) else lambda table: None,
            keeps_versions=History(config.history).__contains__,
            tells_definitions=isinstance(sink, LogSink) and sink.tells_definitions,
        ),
        cascades=config.types if applies_cascades else None,
    )
