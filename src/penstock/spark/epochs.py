"""Runs epochs as micro-batches of Structured Streaming.

The stream carries no data (`spark/stream.py`). A batch takes the plan that is durable and not yet recorded
as applied; if there is none, it waits for one. So a batch that Spark repeats after a crash finds in the
state store what is still to be done. Repeating a plan changes nothing, because every sink recognises its
own earlier commits by `(pipeline, epoch, step)`.

A plan that this run has made, and now executes for the first time, cannot be recorded at a target. If it is,
another driver of the pipeline has written there under the same number. That is noticed, and the table is read
again. Usually it cannot happen: see `runtime/driver_lease.py`.

`EpochRunner` executes the tables of one plan in parallel. A `TableError` parks its table and does not
affect the others. A transient error is retried. So is one for an unknown reason, some times; then it parks
its table, if it depends on that table alone (`failures.messages.of_one_table`). Any other error ends the
batch, and the plan stays pending.

A refusal of the account (`TargetRefused`) ends a run that has applied nothing yet: its options are wrong.
Later somebody has changed something at the target, and may change it back, so the epoch waits. If other
tables were written meanwhile, the refusal is about one table, which is parked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeGuard, TypeVar

from pyspark.sql import SparkSession

from penstock.backoff import Backoff
from penstock.cascades.comparison import Comparisons
from penstock.config import EpochConfig, PipelineConfig, RetriesConfig
from penstock.epochs.incomplete_images import IncompleteImages
from penstock.epochs.log_epochs import LogEpochs
from penstock.epochs.record import record
from penstock.epochs.table_outcome import TableOutcome, written_by_another
from penstock.errors import GrantMissing, PenstockError, TableError, TransientError
from penstock.failures.crossing import returned
from penstock.failures.messages import of_one_table, one_sentence, parked_for
from penstock.failures.outages import passes, refuses
from penstock.model.plan import (
    AdoptTarget,
    CreateTarget,
    DropTarget,
    EpochPlan,
    Move,
    RecreateTarget,
    TablePlan,
)
from penstock.model.schema import TableId, TypeOptions
from penstock.relaylog.files import LogPlace
from penstock.relaylog.split_sources import SplitSources
from penstock.sinks.base import (
    LogSink,
    Missing,
    Narrowing,
    Sink,
    TableSink,
    TargetState,
    name_at_target,
    table_sink,
    version_of,
    wants_before_images,
)
from penstock.snapshot.retries import Retries
from penstock.snapshot.staging import Staging
from penstock.spark.cascades import Cascades
from penstock.spark.steps import Epoch, StepRows, Steps
from penstock.state import StateStore
from penstock.store.base import Store

log = logging.getLogger(__name__)

T = TypeVar("T")
RETRY_FIRST_S = 1.0
"""Pause before the first retry of a step."""
Applied = Callable[["EpochPlan", "list[TableOutcome]"], None]
BATCH_SECONDS = 60.0
"""How long one micro-batch takes plans. Spark's own work between two micro-batches takes longer than many
small epochs: at a latency of some milliseconds, fewer than one change in a hundred may wait for it."""
WAIT_SECONDS = 1.0
"""How often a waiting batch checks for a plan without being woken."""


@dataclass(frozen=True)
class EpochSettings:
    """The options of the pipeline file that concern epochs.

    rereads_max: how often in 24 hours a table is read again automatically for the same reason.
    """

    types: TypeOptions
    epoch: EpochConfig
    retries: RetriesConfig
    narrowing: Narrowing
    rereads_max: int

    @classmethod
    def of(cls, config: PipelineConfig) -> EpochSettings:
        return cls(
            types=config.types,
            epoch=config.epoch,
            retries=config.retries,
            narrowing=config.evolution.narrowing,
            rereads_max=config.rereads_max,
        )


@dataclass(frozen=True)
class EpochLog:
    """The log, as epochs read it. `splits`: where tasks find it. `place`: where this process does; None: it
    does not read it, because no messages are written."""

    images: IncompleteImages
    comparisons: Comparisons
    splits: SplitSources
    place: LogPlace | None = None


class Refreshed(Protocol):
    """Something that is brought up to date after each epoch (`views.py`)."""

    @property
    def is_due(self) -> bool:
        """Whether it needs a refresh although no epoch was applied."""

    @property
    def is_behind(self) -> bool:
        """Whether it had to wait for targets that are ready now."""

    def refresh(self) -> None: ...


class EpochRunner:
    """Executes plans. A running pipeline has one; `foreachBatch` calls its `run_next`. `store`: where tasks'
    files are staged. `may_write` is called before
    targets and the state are written; it raises `DriverReplaced` if another driver has taken over."""

    _has_applied = False
    """Whether this run has applied an epoch."""
    _written: set[TableId]
    """Tables of which the present epoch has written something."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Sink,
        state: StateStore,
        store: Store,
        reads: EpochLog,
        settings: EpochSettings,
        *,
        may_write: Callable[[], None] = lambda: None,
        schema_ids: Callable[[dict[str, Any]], int] | None = None,
        views: Refreshed | None = None,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._state = state
        self._staging = Staging(store)
        self._images = reads.images
        self._settings = settings
        self._splits = reads.splits
        self._schedule = settings.retries.schedule(RETRY_FIRST_S)
        self._on_applied: Applied = lambda plan, outcomes: None
        self._may_write = may_write
        self._views, self._views_follow = views, False
        self._begun = state.last_epoch()
        """The newest epoch that may have been executed before, in this run or an earlier one."""
        rows = StepRows(
            spark,
            state,
            reads.images,
            self._staging,
            types=settings.types,
            before_images=wants_before_images(sink),
            driver_bytes_max=settings.epoch.driver_bytes_max,
            fetched=reads.splits.for_other_machines,
        )
        self._cascades = Cascades(
            spark, sink, store, settings.types, reads.comparisons, rows.chunks, settings.epoch
        )
        self._log = None
        if isinstance(sink, LogSink):
            assert reads.place is not None, "messages are encoded from the relay log"
            self._log = LogEpochs(
                sink, state, reads.place, self._staging, reads.images, settings.types, schema_ids
            )
        self._steps = Steps(sink, state, rows, reads.images, self._cascades, narrowing=settings.narrowing)
        # The threads live as long as the runner, because each has a JVM thread, which is expensive to start.
        self._pool = ThreadPoolExecutor(settings.epoch.tables_parallel, thread_name_prefix="epoch")
        self._busy = threading.Lock()
        self._woken = threading.Event()
        self._resting = threading.Event()
        """Set when the runner ends: no pause before a retry any more."""
        self._started = False
        self._ended = False
        self.failure: BaseException | None = None
        """The error that ended the last batch. Spark's own exception has only its text."""
        self.retries = Retries()
        """Tables of the current epoch whose steps are being retried."""

    def begin(self, applied: Applied) -> None:
        """Permits that plans are applied, from now on. `applied` is called when an epoch has been
        recorded."""
        self._on_applied, self._started = applied, True
        self._woken.set()

    def wake(self) -> None:
        """Says that there is a new plan."""
        self._woken.set()

    def end(self, seconds: float) -> bool:
        """Forbids new plans, and waits until no plan is being applied. Returns False if the time is up
        first."""
        self._ended = True
        self._woken.set()
        self._resting.set()
        if not self._busy.acquire(timeout=seconds):
            return False
        self._busy.release()
        return True

    def run_next(self) -> None:
        """Waits for a plan that is not applied yet and applies it, and then those that follow within
        `BATCH_SECONDS`. Returns at once after `end`."""
        until: float | None = None
        while not self._ended and (until is None or time.monotonic() < until):
            self._woken.clear()
            if self._run_pending():
                until = until or time.monotonic() + BATCH_SECONDS
            else:
                self._woken.wait(WAIT_SECONDS)

    def _run_pending(self) -> bool:
        # Plans are read under the lock, because a batch that Spark has abandoned may still be applying one.
        with self._busy:
            plans = self._state.pending() if self._started and not self._ended else []
            try:
                if self._started and not self._ended:
                    self._refresh_without_epoch(waits=bool(plans))
                for plan in plans:
                    self._views_follow = False
                    self._on_applied(plan, self._run(plan))
                    self._refresh_views()
            except Exception as error:
                self.failure = returned(error)
                raise
            return bool(plans)

    @property
    def views_follow(self) -> bool:
        """Whether all views are up to date, except those that cannot be."""
        return self._views is None or (self._views_follow and not self._views.is_behind)

    def _refresh_without_epoch(self, *, waits: bool) -> None:
        """Brings views up to date after the start, since an earlier run may have been killed before it did,
        and when they are due. Not while an epoch `waits`: some targets may have it already."""
        if self._views is not None and not waits and (not self._views_follow or self._views.is_due):
            self._refresh_views()

    def _refresh_views(self) -> None:
        if self._views is not None:
            self._views.refresh()
        self._views_follow = True

    def _run(self, plan: EpochPlan) -> list[TableOutcome]:
        self._wait_until_ours()
        self._written = set()
        is_first, self._begun = plan.epoch > self._begun, max(plan.epoch, self._begun)
        plan = self._splits.located(plan)
        consequences = self._cascades.prepare(plan)
        # Messages are encoded in one walk over the log, which needs no outline of it.
        driver_bytes_max = self._settings.epoch.driver_bytes_max if self._log is None else 0
        epoch = Epoch.of(plan, consequences, driver_bytes_max=driver_bytes_max, is_first=is_first)
        outcomes = self._run_tables(epoch) if self._log is None else self._write_log(self._log, epoch)
        self._wait_until_ours()
        lost = self._retried(plan, None, "moves", lambda: self._move(plan)) if plan.moves else []
        merges = isinstance(self._sink, TableSink)
        record(
            self._state, plan, outcomes, lost, discard=self._staging.discard,
            rereads_max=self._settings.rereads_max, merges=merges,
        )  # fmt: skip
        self._has_applied = True
        self._cascades.sweep(self._state)
        self._splits.applied(plan)
        return outcomes

    def _wait_until_ours(self) -> None:
        """Returns when this driver is known to have its lease. Waits while the store does not say."""
        backoff = Backoff(self._schedule)
        while True:
            try:
                return self._may_write()
            except TransientError as error:
                if self._ended:
                    raise
                self.retries.failed(None, error)
                log.warning("no epoch is applied for now: %s", error)
                backoff.failed()
                backoff.wait(self._resting)

    def _write_log(self, log_epochs: LogEpochs, epoch: Epoch) -> list[TableOutcome]:
        """Writes the whole epoch to a sink that takes messages."""
        backoff, began = Backoff(self._schedule), time.monotonic()
        while True:
            try:
                with self.retries.running(None, f"epoch {epoch.plan.epoch}"):
                    outcomes = log_epochs.run(epoch.plan, is_first=epoch.is_first and not backoff.failures)
                break
            except Exception as error:
                self._note_failure(backoff, error, epoch.plan.epoch, None, "the epoch")
        self.retries.ended(None)
        for outcome in outcomes:
            outcome.seconds = time.monotonic() - began
        return outcomes

    def _run_tables(self, epoch: Epoch) -> list[TableOutcome]:
        tables = epoch.plan.tables
        if len(tables) == 1:
            return [self._run_table(epoch, tables[0])]
        # Waits for all tables, even if one fails: no step may still run when the plan is repeated.
        futures = [self._pool.submit(self._run_table, epoch, table) for table in tables]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def _run_table(self, epoch: Epoch, table: TablePlan) -> TableOutcome:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "epochs")
        outcome = TableOutcome(table.table)
        started = time.monotonic()
        try:
            # A repeated plan may already have dropped the target. Its steps then have nothing to change.
            is_gone = DropTarget() in table.steps and isinstance(self._open(epoch.plan, table), Missing)
            outcome.dropped = is_gone
            for number, step in enumerate(() if is_gone else table.steps):
                outcome.failed = step
                self._execute(epoch, table, number, outcome)
                outcome.committed += not isinstance(step, CreateTarget | AdoptTarget | RecreateTarget)
            if outcome.written:
                version = partial(version_of, self._sink, table.table)
                outcome.version = self._retried(epoch.plan, table.table, f"{table.table}, version", version)
        except Exception as error:
            parked = None if self._ended else self._of_table(error, table.table)
            if parked is None:
                raise
            outcome.parked = parked
        outcome.seconds = time.monotonic() - started
        return outcome

    def _of_table(self, error: BaseException, table: TableId) -> TableError | None:
        shown = str(name_at_target(self._sink, table))
        return of_one_table(error, str(table), self._state.path.parent, shown=shown)

    def _execute(self, epoch: Epoch, table: TablePlan, number: int, outcome: TableOutcome) -> None:
        """Executes one step, and retries it while its error may be transient."""
        backoff = Backoff(self._schedule)
        while True:
            try:
                with self.retries.running(table.table, f"step {number} of epoch {epoch.plan.epoch}"):
                    self._steps.execute(epoch, table, number, outcome)
                if outcome.was_recorded and epoch.is_first and not backoff.failures:
                    raise written_by_another(table.table, epoch.plan.epoch)
                self.retries.ended(table.table)
                self._written.add(table.table)
                return
            except Exception as error:
                found = returned(error)
                if self._images.learns(table.schema, table.steps[number], found):
                    continue
                if self._lacks_grant(found, table, number, backoff.failures):
                    raise parked_for(found, str(table.table)) from error
                what = f"{table.table}, step {number}"
                self._note_failure(backoff, error, epoch.plan.epoch, table.table, what)

    def _lacks_grant(
        self, error: BaseException, table: TablePlan, number: int, failures: int
    ) -> TypeGuard[GrantMissing]:
        """Whether the account may not write this table, and may write others."""
        if not isinstance(error, GrantMissing) or not self._has_applied:
            return False
        is_new = isinstance(table.steps[number], CreateTarget | AdoptTarget | RecreateTarget)
        others = is_new or bool(self._written - {table.table})
        return others and failures + 1 >= self._settings.retries.attempts_max

    def _open(self, plan: EpochPlan, table: TablePlan) -> TargetState:
        look = partial(self._sink.open, table.table)
        return self._retried(plan, table.table, f"{table.table}, its target", look)

    def _move(self, plan: EpochPlan) -> list[Move]:
        return table_sink(self._sink).move(plan.moves)

    def _retried(self, plan: EpochPlan, table: TableId | None, what: str, act: Callable[[], T]) -> T:
        """Does something that can be repeated, and retries it as steps are."""
        backoff = Backoff(self._schedule)
        while True:
            try:
                found = act()
                self.retries.ended(table)
                return found
            except Exception as error:
                self._note_failure(backoff, error, plan.epoch, table, what)

    def _note_failure(
        self, backoff: Backoff, error: Exception, epoch: int, table: TableId | None, what: str
    ) -> None:
        """Waits before the next attempt. Raises the error if there is to be none."""
        found = returned(error)
        backoff.failed()
        attempt, attempts_max = backoff.failures, self._settings.retries.attempts_max
        passing = passes(found) or (self._has_applied and refuses(found))
        lasting = not passing and (isinstance(found, PenstockError) or attempt >= attempts_max)
        if lasting or self._ended:
            if found is error:
                raise error
            raise found from error
        reason = one_sentence(found)
        log.warning("epoch %d, %s: attempt %d failed: %s", epoch, what, attempt, reason)
        self.retries.failed(table, found, reason)
        backoff.wait(self._resting)
