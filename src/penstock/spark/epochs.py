"""Epochs as micro-batches of Structured Streaming, and what is done in each.

The stream carries nothing (`spark/stream.py`): a batch takes the plan that is durable and not recorded as
applied, and waits for one if there is none. So a batch that Spark repeats after a crash finds in the state
store what is still to do. A repeated plan is harmless because every sink recognises the commits it already
has by `(pipeline, epoch, step)`.

`EpochRunner` does the tables of one plan side by side. A `TableError` parks its table and leaves the others
alone; a passing fault is tried again; anything else ends the batch, and the plan stays to be done.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.backoff import Backoff
from penstock.config import EpochConfig, PipelineConfig, RetriesConfig
from penstock.errors import PenstockError, TableError, TransientError
from penstock.failures.messages import one_sentence
from penstock.model.plan import CreateTarget, DropTarget, EpochPlan, RecreateTarget, TablePlan
from penstock.model.schema import TypeOptions
from penstock.sinks.base import ChangeSink, Missing, Narrowing, Sink, TableSink, table_sink, version_of
from penstock.snapshot.retries import Retries
from penstock.spark.cascades import Cascades
from penstock.spark.errors import returned
from penstock.spark.incomplete_images import IncompleteImages
from penstock.spark.record_epoch import record
from penstock.spark.step_rows import StepRows
from penstock.spark.steps import Epoch, Steps
from penstock.spark.table_outcome import TableOutcome
from penstock.state import StateStore

log = logging.getLogger(__name__)

RETRY_FIRST_S = 1.0
BATCH_SECONDS = 10.0
"""How long one micro-batch takes plans: Spark's own work between two of them takes longer than a small epoch
does."""
WAIT_SECONDS = 1.0
"""How often a waiting batch looks by itself, should nobody wake it."""


@dataclass(frozen=True)
class EpochSettings:
    """What the pipeline file says of epochs.

    rereads_max: how often in 24 hours a table is read again by itself for one reason. cascades: the folder
    for what foreign keys did.
    """

    types: TypeOptions
    epoch: EpochConfig
    retries: RetriesConfig
    narrowing: Narrowing
    rereads_max: int
    cascades: Path

    @classmethod
    def of(cls, config: PipelineConfig) -> EpochSettings:
        return cls(
            types=config.types,
            epoch=config.epoch,
            retries=config.retries,
            narrowing=config.evolution.narrowing,
            rereads_max=config.rereads_max,
            cascades=config.state / "cascades",
        )


class EpochRunner:
    """Executes plans. One instance per running pipeline; `run_next` is what `foreachBatch` calls.
    `on_applied` is called when an epoch is recorded."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Sink,
        state: StateStore,
        images: IncompleteImages,
        settings: EpochSettings,
        on_applied: Callable[[EpochPlan, list[TableOutcome]], None],
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._state = state
        self._images = images
        self._settings = settings
        self._schedule = settings.retries.schedule(RETRY_FIRST_S)
        self._on_applied = on_applied
        few = settings.epoch.driver_bytes_max
        before_images = isinstance(sink, ChangeSink) and sink.before_images
        rows = StepRows(
            spark, state, images, types=settings.types, before_images=before_images, driver_bytes_max=few
        )
        self._cascades = Cascades(spark, sink, settings.cascades, settings.types, rows.chunks, settings.epoch)
        self._steps = Steps(sink, state, rows, images, self._cascades, narrowing=settings.narrowing)
        # Threads live as long as the runner: each has a JVM thread of its own, which is costly to start.
        self._pool = ThreadPoolExecutor(settings.epoch.tables_parallel, thread_name_prefix="epoch")
        self._busy = threading.Lock()
        self._woken = threading.Event()
        self._resting = threading.Event()
        """Set: nobody rests before another attempt any more."""
        self._begun = False
        self._ended = False
        self.failure: BaseException | None = None
        """What ended the last batch, as it was; Spark's own exception holds text only."""
        self.retries = Retries()
        """Tables of the epoch at hand that cannot be written yet; None: all of them."""

    def begin(self) -> None:
        """From now on plans are applied."""
        self._begun = True
        self._woken.set()

    def wake(self) -> None:
        """There is a new plan."""
        self._woken.set()

    def end(self, seconds: float) -> bool:
        """Returns once no plan is being applied, or the time is up (False); none is begun from now on."""
        self._ended = True
        self._woken.set()
        self._resting.set()
        if not self._busy.acquire(timeout=seconds):
            return False
        self._busy.release()
        return True

    def run_next(self) -> None:
        """Waits for a plan that is durable and not yet applied, and applies it; then those that follow it
        for some time. Returns at once after `end`."""
        until: float | None = None
        while not self._ended and (until is None or time.monotonic() < until):
            self._woken.clear()
            if self._run_pending():
                until = until or time.monotonic() + BATCH_SECONDS
            else:
                self._woken.wait(WAIT_SECONDS)

    def _run_pending(self) -> bool:
        # Under the lock also what is asked for: a batch that Spark has given up may still be in here.
        with self._busy:
            plans = self._state.pending() if self._begun and not self._ended else []
            try:
                for plan in plans:
                    self._on_applied(plan, self._run(plan))
            except Exception as error:
                self.failure = returned(error)
                raise
            return bool(plans)

    def _run(self, plan: EpochPlan) -> list[TableOutcome]:
        consequences, few = self._cascades.prepare(plan), self._settings.epoch.driver_bytes_max
        outcomes = self._run_tables(Epoch.of(plan, consequences, driver_bytes_max=few))
        lost = table_sink(self._sink).move(plan.moves) if plan.moves else []
        merges = isinstance(self._sink, TableSink)
        record(self._state, plan, outcomes, lost, rereads_max=self._settings.rereads_max, merges=merges)
        self._cascades.sweep(self._state)
        return outcomes

    def _run_tables(self, epoch: Epoch) -> list[TableOutcome]:
        tables = epoch.plan.tables
        if len(tables) == 1:
            return [self._run_table(epoch, tables[0])]
        # Every table is waited for, also when one fails: no step may still run when the plan is tried again.
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
            # Done again after the target was dropped, there is nothing to do the steps before that to.
            gone = DropTarget() in table.steps and isinstance(self._sink.open(table.table), Missing)
            outcome.dropped = gone
            for number, step in enumerate(() if gone else table.steps):
                outcome.failed = step
                self._execute(epoch, table, number, outcome)
                outcome.committed += not isinstance(step, CreateTarget | RecreateTarget)
            if outcome.written:
                outcome.version = version_of(self._sink, table.table)
        except TableError as error:
            log.warning("%s is parked: %s", table.table, error)
            outcome.parked = error
        outcome.seconds = time.monotonic() - started
        return outcome

    def _execute(self, epoch: Epoch, table: TablePlan, number: int, outcome: TableOutcome) -> None:
        """One step, tried again as long as its fault may pass."""
        backoff = Backoff(self._schedule)
        while True:
            try:
                self._steps.execute(epoch, table, number, outcome)
                self.retries.ended(table.table)
                return
            except Exception as error:
                found = returned(error)
                if self._images.learns(table.schema, table.steps[number], found):
                    continue
                backoff.failed()
                attempt, attempts_max = backoff.failures, self._settings.retries.attempts_max
                passing = isinstance(found, TransientError)
                lasting = not passing and (isinstance(found, PenstockError) or attempt >= attempts_max)
                if lasting or self._ended:
                    if found is error:
                        raise
                    raise found from error
                reason = one_sentence(found)
                log.warning("epoch %d, %s, step %d: attempt %d failed: %s", epoch.plan.epoch, table.table,
                            number, attempt, reason)  # fmt: skip
                self.retries.failed(table.table, found, reason)
                backoff.wait(self._resting)
