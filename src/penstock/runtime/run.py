"""One run of a pipeline: opens its parts and connects them, then runs its loop.

One loop in the driver's main thread checks the receiver and the stream, plans the next epoch once the last
one is applied, answers signals and reports. Spark applies epochs and reads chunks in other threads. The
state store alone determines what may happen next, so a killed pipeline continues where it stopped.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.cascades.waiting import is_unfinished
from penstock.errors import TargetRefused, TransientError
from penstock.model.plan import EpochPlan
from penstock.planning.drift import Drift
from penstock.planning.source_end import SourceEnd
from penstock.runtime import shape_changes, targets
from penstock.runtime.engine import Engine, open_engine
from penstock.runtime.log_needs import needed
from penstock.runtime.parts import Followed, Started
from penstock.runtime.planning_loop import LoopPace
from penstock.runtime.progress import Progress
from penstock.runtime.shutdown import Ending
from penstock.runtime.unpark import unpark
from penstock.runtime.workers import Workers, open_workers
from penstock.signals import settings
from penstock.signals.comparisons import Comparisons
from penstock.signals.opening import open_channels
from penstock.signals.work import Signals
from penstock.sinks.base import readable
from penstock.snapshot.retries import Retries

log = logging.getLogger(__name__)

PLANNING_RETRY = Schedule.steady(2.0)
"""Pause before planning again when the source did not answer. Its connections have limits of their own."""


def open_run(
    started: Started,
    ending: Ending,
    until: contextlib.ExitStack,
    *,
    once: bool,
    http: str | None,
    on_progress: Callable[[Progress], None] | None,
    spark: Any,
) -> Run:
    """Opens everything `until` that ends, in the order in which one part needs another. Slow steps that need
    nothing else run in parallel: the JVM starts while the receiver starts, and the stream and the workers
    start while tables are looked up. `spark`: a session of the caller, in whose context the run works."""
    config, state, source = started.config, started.state, started.source
    with ThreadPoolExecutor(1, thread_name_prefix="start") as aside:
        opening = aside.submit(open_engine, started, ending, spark, until)
        followed = started.follow()
        until.callback(source.close)
        goal = SourceEnd(source, followed.log) if once else None
        engine = opening.result()
        if followed.applies_cascades:
            readable(engine.sink)  # its rows are needed to compute what a foreign key changes
        workers = open_workers(followed, engine, ending, until)
        query = aside.submit(workers.query.start)
        catch_up_s = config.relay_log.catch_up_timeout / 1000
        followed.discover(wait=partial(followed.wait, seconds=catch_up_s))
        shape_changes.check_new(engine.sink, state, types=config.types)
        adopted = targets.check_new(engine.sink, state, followed.captured, types=config.types)
        run = Run(followed, engine, workers, goal, http=http, on_progress=on_progress)
        ending.report, ending.beat = run.progress.ending, run.progress.beat
        if adopted:  # rows are placed only after the start of their tables
            run.planners.renewal.ask()
        query.result()
    workers.runner.begin(run.applied)
    workers.chunks.start()
    return run


class Run:
    """One run of a pipeline, whose parts are all open. `goal`: where a run ends that ends by itself."""

    def __init__(
        self,
        followed: Followed,
        engine: Engine,
        workers: Workers,
        goal: SourceEnd | None,
        *,
        http: str | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.followed = followed
        self.engine = engine
        self.workers = workers
        self.goal = goal
        self.on_progress = on_progress
        config, state, log, source = followed.config, followed.state, followed.log, followed.source
        self.planners = followed.planners(engine.sink, engine.staging)
        self.drift = Drift(state, log, source, config.rereads_max)
        self.parked = targets.parked_reasons(engine.sink, state, source, followed.captured, config)
        self.comparisons = Comparisons(state, log, engine.sink)
        self.signals = self._make_signals()
        self.planning_retries = Retries()
        self.planning_backoff = Backoff(PLANNING_RETRY)
        self.last_plan = 0.0
        self.progress = Progress(config, state, log, followed.receiver, http=http,
                                 gate=workers.chunks.gate.to_json, retrying=self._retrying)  # fmt: skip

    def _make_signals(self) -> Signals:
        followed, config = self.followed, self.followed.config
        kept = self.engine.sink if config.sink_kind.durable else None
        return Signals(
            followed.state,
            config,
            followed.captured,
            open_channels(config, followed.state, followed.log, followed.source.catalog.read_table),
            discover=self._find_more,
            catalog=followed.source.catalog,
            unpark=partial(unpark, followed.state, followed.log, kept, protect_log=followed.consumer.protect),
            limit=lambda limits: self.workers.chunks.limits(**limits),
            advance_log=self.planners.renewal.ask,
        )

    def _find_more(self, reads: bool) -> None:
        """Adds tables that a signal has named."""
        state, config = self.followed.state, self.followed.config
        known = state.tables()
        self.followed.discover(wait=self.planners.resnapshots.wait_shortly, reads=reads)
        new = state.tables().keys() - known.keys()
        if targets.park_taken(self.engine.sink, state, new, types=config.types):
            self.planners.renewal.ask()

    def _retrying(self) -> list[dict[str, Any]]:
        return [*self.workers.retrying(), *self.planning_retries.to_json("planning")]

    def loop(self) -> Progress:
        """Runs until the pipeline is stopped or has finished."""
        followed, chunks = self.followed, self.workers.chunks
        interval_s = followed.config.epoch.interval / 1000
        pace = LoopPace(followed.state, followed.log, interval_s=interval_s)
        while not followed.stopping.is_set():
            if self.engine.lease is not None:
                self.engine.lease.raise_if_lost()
            followed.receiver.check()
            self.workers.query.check()
            if chunks.error is not None:
                raise chunks.error
            if pace.should_look():
                self.planners.renewal.work()
                self._plan()
                self._report()
                if self._finished():
                    break
            time.sleep(pace.tick)
        self._report(now=True)
        self.progress.end()
        return self.progress

    def _plan(self) -> None:
        """Between two epochs: answers signals, then plans the next epoch."""
        if self.followed.state.has_pending() or not self.planning_backoff.ready:
            return
        try:
            self.signals.work()
            cuts = self.comparisons.work()
            rested = self.last_plan + self.followed.config.epoch.interval / 1000
            may_plan = not self.comparisons.held and time.monotonic() >= rested
            if may_plan:
                self.drift.work(self.workers.chunks.misfits())
                self.planners.resnapshots.work()
                self.parked.work()
            if (may_plan or cuts) and self.planners.planning.next(cuts):
                self.workers.runner.wake()
                self.last_plan = time.monotonic()
            self.planning_retries.ended(None)
        except (TransientError, TargetRefused) as error:
            # A server does not answer. Pending plans continue, and the receiver reports details.
            log.warning("nothing can be planned for now: %s", error)
            self.planning_retries.failed(None, error)
            self.planning_backoff.failed()

    def applied(self, plan: EpochPlan, outcomes: list[Any]) -> None:
        """Called from Spark's thread after an epoch was recorded."""
        self.workers.query.epoch_applied()
        self.workers.runner.failure = None
        self.workers.runner.retries.clear()
        self.progress.applied(plan, outcomes)
        for outcome in outcomes:
            self.engine.staging.discard_placed(outcome.placed)

    def _report(self, *, now: bool = False) -> None:
        """Tells retention which log is still needed, and writes the status."""
        if not (now or self.progress.should_report()):
            return
        self.followed.consumer.needs(needed(self.followed.state, self.signals.needed()))
        self.progress.write()
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _finished(self) -> bool:
        """Whether a run that ends by itself has done everything."""
        state = self.followed.state
        only = self.followed.config.snapshot.mode == "only"
        if self.goal is None and not only:
            return False
        if is_unfinished(state.tables(), settings.partials_to_read(state)):
            return False
        if state.has_pending() or state.signals("accepted") or not self.workers.runner.views_follow:
            return False
        if self.goal is None:
            return True
        with contextlib.suppress(TransientError):  # after a failover the source is asked again
            return self.followed.has_planned(self.goal.position())
        return False
