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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from typing_extensions import assert_never

from penstock.backoff import Backoff
from penstock.config import EpochConfig, RetriesConfig
from penstock.errors import PenstockError, TableError, TransientError
from penstock.failures.messages import one_sentence
from penstock.model.plan import (
    WHOLE_RANGE_BYTES_MAX,
    ApplyCascades,
    ApplyEvents,
    CreateTarget,
    DeleteOlder,
    DropTarget,
    EpochPlan,
    Evolve,
    Kept,
    Move,
    Park,
    PlaceChunks,
    RecreateTarget,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.relaylog.outline import Outlines
from penstock.sinks import base as sinks
from penstock.sinks.base import Commit, EvolvedColumn, Missing, Narrowing, Sink
from penstock.sinks.files import Consume, Present, Projection, Rows, map_batches
from penstock.snapshot.driver_side import places_here
from penstock.snapshot.retries import Retries
from penstock.sources.row_images import Computation
from penstock.spark import tasks
from penstock.spark.cascades import Cascades, Consequences
from penstock.spark.errors import crossing, returned
from penstock.spark.record_epoch import record
from penstock.spark.table_outcome import TableOutcome, refuse_rereads
from penstock.state import StateStore

log = logging.getLogger(__name__)

SHARE_BYTES = 24 * 1024**2
"""Log bytes that make one more task worth its start."""
KEYS_BYTES_MAX = 256 * 1024**2
"""Log bytes whose keys one task holds at most: 60 MB of keys when rows are 100 bytes."""
RETRY_FIRST_S = 1.0
BATCH_SECONDS = 10.0
"""How long one micro-batch takes plans: Spark's own work between two of them takes longer than a small epoch
does."""
WAIT_SECONDS = 1.0
"""How often a waiting batch looks by itself, should nobody wake it."""


class EpochRunner:
    """Executes plans. One instance per running pipeline; `run_next` is what `foreachBatch`
    calls. `rereads_max`: how often in 24 hours a table is read again by itself for one reason.

    `partial_images`: the source's row images lack columns. A table of which that shows later is done again in
    that way. `omitted`: what inserts leave out then. `computation`: how generated columns are computed that
    images leave out; asked for anew at each step of a table of which that has shown, since an expression may
    change and nothing else."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Sink,
        state: StateStore,
        *,
        types: TypeOptions,
        epoch: EpochConfig,
        retries: RetriesConfig,
        narrowing: Narrowing,
        rereads_max: int,
        partial_images: bool,
        omitted: Callable[[TableSchema], pa.RecordBatch],
        computation: Callable[[TableSchema], Computation],
        cascades: Path,
        on_applied: Callable[[EpochPlan, list[TableOutcome]], None],
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._state = state
        self._types = types
        self._before_images = isinstance(sink, sinks.ChangeSink) and sink.before_images
        self._narrowing = narrowing
        self._rereads_max = rereads_max
        self._driver_bytes_max = epoch.driver_bytes_max
        self._attempts_max = retries.attempts_max
        self._schedule = retries.schedule(RETRY_FIRST_S)
        self._partial_images = partial_images
        self._partial_tables: set[TableId] = set()
        self._omitted = omitted
        self._computation = computation
        self._computed_tables: set[TableId] = set()
        # Threads live as long as the runner: each has a JVM thread of its own, which is costly to start.
        self._pool = ThreadPoolExecutor(epoch.tables_parallel, thread_name_prefix="epoch")
        self._on_applied = on_applied
        self._cascades = Cascades(spark, sink, cascades, types, self._chunk_rows, epoch)
        self._consequences = Consequences(cascades)
        self._outlines = Outlines({})
        self._cores = max(1, spark.sparkContext.defaultParallelism)
        self._lost: list[Move] = []
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
                    outcomes = self._run(plan)
                    self._record(plan, outcomes)
                    self._cascades.sweep(self._state)
                    self._on_applied(plan, outcomes)
            except Exception as error:
                self.failure = returned(error)
                raise
            return bool(plans)

    def _run(self, plan: EpochPlan) -> list[TableOutcome]:
        self._consequences = self._cascades.prepare(plan)
        self._outlines = _outlines(plan, self._driver_bytes_max)
        outcomes = self._run_tables(plan)
        if plan.moves:
            self._lost = sinks.table_sink(self._sink).move(plan.moves)
        return outcomes

    def _run_tables(self, plan: EpochPlan) -> list[TableOutcome]:
        if len(plan.tables) == 1:
            return [self._run_table(plan, plan.tables[0])]
        # Every table is waited for, also when one fails: no step may still run when the plan is tried again.
        futures = [self._pool.submit(self._run_table, plan, table) for table in plan.tables]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def _run_table(self, plan: EpochPlan, table: TablePlan) -> TableOutcome:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "epochs")
        outcome = TableOutcome(table.table)
        started = time.monotonic()
        try:
            # Done again after the target was dropped, there is nothing to do the steps before that to.
            gone = DropTarget() in table.steps and isinstance(self._sink.open(table.table), Missing)
            outcome.dropped = gone
            for number, step in enumerate(() if gone else table.steps):
                outcome.failed = step
                self._step_with_retry(plan, table, number, step, outcome)
                outcome.committed += not isinstance(step, CreateTarget | RecreateTarget)
            if outcome.written:
                outcome.version = sinks.version_of(self._sink, table.table)
        except TableError as error:
            log.warning("%s is parked: %s", table.table, error)
            outcome.parked = error
        outcome.seconds = time.monotonic() - started
        return outcome

    def _step_with_retry(
        self, plan: EpochPlan, table: TablePlan, number: int, step: Step, outcome: TableOutcome
    ) -> None:
        backoff = Backoff(self._schedule)
        while True:
            try:
                self._step(plan, table, number, step, outcome)
                self.retries.ended(table.table)
                return
            except Exception as error:
                found = returned(error)
                if self._shows_lacking(table.schema, step, found):
                    continue
                backoff.failed()
                attempt = backoff.failures
                passing = isinstance(found, TransientError)
                lasting = not passing and (isinstance(found, PenstockError) or attempt >= self._attempts_max)
                if lasting or self._ended:
                    if found is error:
                        raise
                    raise found from error
                log.warning("epoch %d, %s, step %d: attempt %d failed: %s", plan.epoch, table.table, number,
                            attempt, one_sentence(found))  # fmt: skip
                self.retries.failed(table.table, found, one_sentence(found))
                backoff.wait(self._resting)

    def _shows_lacking(self, schema: TableSchema, step: Step, error: BaseException) -> bool:
        """Whether a step failed because images lack something, and has not been tried in the way that takes
        this. A change log has no place for rows that lack columns."""
        if not isinstance(step, ApplyEvents) or not isinstance(error, TableError):
            return False
        match error.details.get("lacks"):
            # What foreign keys do cannot be worked out from rows that lack columns.
            case "columns" if not (
                step.mode == "changes" or schema.foreign_keys or self._is_partial(schema.table)
            ):
                self._partial_tables.add(schema.table)
                return True
            case "generated" if schema.table not in self._computed_tables:
                self._computed_tables.add(schema.table)
                return True
        return False

    def _is_partial(self, table: TableId) -> bool:
        return self._partial_images or table in self._partial_tables

    def _step(
        self, plan: EpochPlan, table: TablePlan, number: int, step: Step, outcome: TableOutcome
    ) -> None:
        commit = Commit(self._state.uuid, plan.epoch, number)
        by_itself = CreateTarget | RecreateTarget | ApplyCascades | PlaceChunks | DeleteOlder
        outcome.wrote |= not isinstance(step, by_itself)
        match step:
            case CreateTarget():
                self._sink.create(table.schema, self._arrow(table.schema, "rows"))
            case RecreateTarget():
                sinks.table_sink(self._sink).clear(table.table)
                self._sink.create(table.schema, self._arrow(table.schema, "rows"))
            case DropTarget():
                sinks.table_sink(self._sink).drop(table.table)
                outcome.dropped = True
            case ApplyEvents():
                # What lacks columns may be of a row that is still to be read: a merge leaves that out.
                partial = step.mode != "changes" and self._is_partial(table.table)
                mode = "merge" if partial else step.mode
                self._write(table, mode, self._events(table.schema, step), commit)
                outcome.written = True
            case ApplyCascades():
                self._consequences.check(table.table)
                rows = self._cascades.rows(self._consequences, table)
                if rows is not None:
                    self._write(table, "merge", rows, commit)
                    outcome.written = outcome.wrote = True
            case PlaceChunks():
                self._consequences.check(table.table)
                if table.table in self._consequences.unclear:
                    refuse_rereads(self._state, table.table)
                    outcome.voided.extend(step.chunks)
                    return
                placed = self._chunk_rows(plan, table, step)
                if step.window is not None:
                    placed = self._cascades.corrected(self._consequences, table, placed)
                self._write(table, step.mode, placed, commit)
                outcome.wrote = True
                outcome.chunks += len(step.chunks)
                outcome.rows += sum(staged.rows for staged in step.chunks)
                outcome.placed.extend(step.chunks)
                outcome.written = True
            case TruncateTarget(timestamp_us=at, sequence=sequence):
                at_offset = plan.range.end if sequence is None else sequence
                self._sink.truncate(table.table, commit, sequence=at_offset, timestamp_us=at)
                outcome.truncated, outcome.written = True, False
            case Evolve():
                self._evolve(table.table, step, commit)
                outcome.schema, outcome.kept = step.schema, step.kept
            case DeleteOlder():
                if outcome.voided:
                    return  # rows are still to be read
                outcome.wrote = True
                sinks.table_sink(self._sink).delete_older(table.table, step.sequence, commit)
                outcome.replaced = True
            case Park():
                raise TableError(step.reason, hint=step.hint, table=str(table.table), offset=step.offset)
            case _:
                assert_never(step)

    def _write(self, table: TablePlan, mode: str, rows: Rows, commit: Commit) -> None:
        key = table.schema.key
        if table.kept is not None:
            rows = self._kept(table, table.kept, rows, "changelog" if mode == "changes" else "latest")
            names = {source: c.name for source, c in zip(table.kept.sources, table.kept.schema.columns,
                                                         strict=True)}  # fmt: skip
            key = tuple(names[name] for name in key)
        if mode == "changes":
            sinks.change_sink(self._sink).write_changes(table.table, rows, commit)
        elif mode == "append":
            sinks.table_sink(self._sink).append(table.table, rows, commit)
        else:
            sinks.table_sink(self._sink).merge(table.table, rows, key, commit)

    def _kept(self, table: TablePlan, kept: Kept, rows: Rows, layout: str) -> Rows:
        """Rows in the columns that the target keeps."""
        arrow = self._arrow(kept.schema, layout, partial_images=rows.present is not None)
        own = list(arrow.names)[len(kept.sources) :]
        projection = Projection(arrow, (*kept.sources, *own))
        projected = rows.projected(projection, from_arrow_schema(arrow, prefer_timestamp_ntz=True))
        if rows.present is None:
            return projected
        places = {
            column.name: rows.present.places[source]
            for column, source in zip(kept.schema.columns, kept.sources, strict=True)
            if source is not None
        }
        return replace(projected, present=replace(rows.present, places=places))

    def _evolve(self, table: TableId, step: Evolve, commit: Commit) -> None:
        if step.kept is not None:
            arrow = self._arrow(step.kept.schema, "rows")
            columns = [EvolvedColumn(field, field.name, refills=True) for field in arrow]
        else:
            arrow = self._arrow(step.schema, "rows")
            columns = [
                EvolvedColumn(field, origin.before, origin.default_sql, step.refills)
                for field, origin in zip(arrow, step.origins, strict=True)
            ]
        self._sink.evolve(table, columns, commit, narrowing=self._narrowing)

    def _arrow(self, schema: TableSchema, layout: str, *, partial_images: bool = False) -> pa.Schema:
        from penstock._core import arrow_schema

        return arrow_schema(schema.to_json(), layout, self._types.to_json(), partial_images)

    def _rows(
        self,
        schema: TableSchema,
        layout: str,
        run: Callable[[Any], tasks.Batches],
        work: tuple[Any, ...],
        present: Present | None = None,
    ) -> Rows:
        arrow = self._arrow(schema, layout, partial_images=present is not None)
        spark_schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
        count, name = len(work), str(schema.table)

        def make(consume: Consume | None, result: Any) -> DataFrame:
            indexes = self._spark.range(0, count, 1, count)
            return indexes.mapInArrow(tasks.run_tasks(run, work, name, consume), result)

        return Rows(partial(make, None, spark_schema), make, present)

    def _events(self, schema: TableSchema, step: ApplyEvents) -> Rows:
        text, types = schema.to_json(), self._types
        if step.mode == "changes":
            task = tasks.DecodeTask(text, (), "changelog", types, before_images=self._before_images)
            task = replace(task, computation=self._computed(schema))
            work = tuple(
                replace(task, splits=(split,), positions=(self._outlines.positions(schema.table, split),))
                for split in step.splits
            )
            return self._rows(schema, "changelog", tasks.decode, work)
        present = self._present(schema) if self._is_partial(schema.table) else None
        positions = tuple(self._outlines.positions(schema.table, split) for split in step.splits)
        task = tasks.DecodeTask(text, step.splits, "latest", types, positions=positions)
        task = replace(task, computation=self._computed(schema))
        if present is not None:
            task = replace(task, partial_images=True, defaults=self._omitted(schema))
        if step.bytes <= WHOLE_RANGE_BYTES_MAX:
            shares = min(self._cores, max(1, round(step.bytes / SHARE_BYTES)))
            shares = max(shares, -(-step.bytes // KEYS_BYTES_MAX))
            work = tuple(
                replace(task, bucket=(share, shares) if shares > 1 else None) for share in range(shares)
            )
            rows = self._rows(schema, "latest", tasks.decode, work, present)
            newer = step.newer and present is None
            few = newer and step.bytes <= self._driver_bytes_max
            return replace(rows, newer=newer, here=partial(_here, task) if few else None)
        work = tuple(
            replace(task, splits=(split,), positions=(at,))
            for split, at in zip(step.splits, positions, strict=True)
        )
        reduced = self._rows(schema, "latest", tasks.decode, work, present).frame
        shares = max(self._cores, step.bytes // (2 * SHARE_BYTES))
        by_key = reduced.repartition(shares, *[f"`{name.replace('`', '``')}`" for name in schema.key])
        one_a_key = map_batches(by_key, _reducer(text, types, str(schema.table)), reduced.schema)
        return Rows(one_a_key, present=present, newer=step.newer and present is None)

    def _computed(self, schema: TableSchema) -> Computation | None:
        return self._computation(schema) if schema.table in self._computed_tables else None

    def _present(self, schema: TableSchema) -> Present:
        """Chunks that are still to be placed bring the rows that the target does not have yet. A resnapshot
        brings them, too, if one became pending with this very epoch."""
        state = self._state.table(schema.table)
        places = {column.name: place for place, column in enumerate(schema.columns)}
        return Present(places, strict=state is None or state.rows_read)

    def _chunk_rows(self, plan: EpochPlan, table: TablePlan, step: PlaceChunks) -> Rows:
        schema = table.schema
        layout: Literal["latest", "changelog"] = "changelog" if step.mode == "changes" else "latest"
        task = tasks.PlaceTask(
            schema.to_json(),
            step.chunks,
            step.scans,
            plan.range.end,
            layout,
            self._types,
            self._omitted(schema) if schema.key and step.scans else None,
        )
        shares = min(self._cores, len(step.chunks))
        work = tuple(replace(task, chunks=step.chunks[share::shares]) for share in range(shares))
        rows = self._rows(schema, layout, tasks.place, work)
        # What foreign keys did to rows of the window is another step's, and may be newer than they.
        newer = step.newer and step.window is None
        few = places_here(step, self._driver_bytes_max)
        return replace(rows, newer=newer, here=partial(_placed_here, task) if few else None)

    def _record(self, plan: EpochPlan, outcomes: list[TableOutcome]) -> None:
        merges = isinstance(self._sink, sinks.TableSink)
        record(self._state, plan, outcomes, self._lost, rereads_max=self._rereads_max, merges=merges)
        self._lost = []


def _outlines(plan: EpochPlan, bytes_max: int) -> Outlines:
    """Of what the tables with little in the epoch have in it: others are read by several tasks, to which
    their positions would have to be sent."""
    splits = {
        table.table: [
            split
            for step in table.steps
            if isinstance(step, ApplyEvents) and step.bytes <= bytes_max
            for split in step.splits
        ]
        for table in plan.tables
    }
    return Outlines(splits)


def _here(task: tasks.DecodeTask) -> tasks.Batches:
    """What the task does, in the driver."""
    with crossing(str(TableSchema.from_json(task.table).table)).guard():
        yield from tasks.decode(task)


def _placed_here(task: tasks.PlaceTask) -> tasks.Batches:
    with crossing(str(TableSchema.from_json(task.table).table)).guard():
        yield from tasks.place(task)


def _reducer(table: str, types: TypeOptions, name: str) -> Callable[[Any], tasks.Batches]:
    crosses = crossing(name)

    def body(batches: Any) -> tasks.Batches:
        with crosses.guard():
            yield from tasks.reduce_latest(table, types, batches)

    return body
