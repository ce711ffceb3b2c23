"""Executes one step of a plan against the sink: makes its rows, in the way that `epochs/strategy.py` chooses,
and writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from typing_extensions import assert_never

from penstock.epochs import strategy, tasks
from penstock.epochs.incomplete_images import IncompleteImages
from penstock.epochs.strategy import mode_of
from penstock.epochs.table_outcome import TableOutcome, refuse_rereads
from penstock.errors import TableError
from penstock.failures.crossing import crossing
from penstock.model.change import SEQUENCE, own_name, public
from penstock.model.plan import (
    AdoptTarget,
    ApplyCascades,
    ApplyEvents,
    CreateTarget,
    DeleteOlder,
    DropTarget,
    EpochPlan,
    Evolve,
    KeptColumns,
    Mode,
    Park,
    PlaceChunks,
    RecreateTarget,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.relaylog.outline import Outlines
from penstock.sinks.base import (
    Commit,
    EvolvedColumn,
    Narrowing,
    Sink,
    VersionSink,
    adopting,
    change_sink,
    table_sink,
)
from penstock.sinks.rows import Computed, Consume, Incomplete, Projection, RowKind, Rows, map_batches
from penstock.sinks.spark_sql import quoted
from penstock.snapshot.staging import Staging
from penstock.spark.cascades import Cascades, Consequences
from penstock.spark.row_counts import RowCounts
from penstock.state import StateStore


@dataclass(frozen=True)
class Epoch:
    """A plan, and what its tables share while it is executed."""

    plan: EpochPlan
    consequences: Consequences
    outlines: Outlines
    is_first: bool
    """Whether the plan is new, and nobody can have begun to execute it before."""

    @classmethod
    def of(
        cls, plan: EpochPlan, consequences: Consequences, *, driver_bytes_max: int, is_first: bool = False
    ) -> Epoch:
        """Adds outlines for the events that the driver may decode. Larger ranges are decoded by several
        tasks, and sending them the positions would cost more than it saves."""
        splits = {
            table.table: [
                split
                for step in table.steps
                if isinstance(step, ApplyEvents) and step.bytes <= driver_bytes_max
                for split in step.splits
            ]
            for table in plan.tables
        }
        return cls(plan, consequences, Outlines(splits), is_first)


class Steps:
    """Executes steps of a plan. Thread-safe, because tables are written in parallel. `narrowing`: see
    `config.SchemaConfig`."""

    def __init__(
        self,
        sink: Sink,
        state: StateStore,
        rows: StepRows,
        images: IncompleteImages,
        cascades: Cascades,
        *,
        narrowing: Narrowing,
    ) -> None:
        self._sink = sink
        self._state = state
        self._rows = rows
        self._images = images
        self._cascades = cascades
        self._narrowing = narrowing

    def execute(self, epoch: Epoch, table: TablePlan, number: int, outcome: TableOutcome) -> None:
        """Executes step `number` of the table's plan and stores what it did in `outcome`. Repeating a step
        changes nothing, because the sink recognises its commit. Raises `TableError` for errors of this
        table."""
        plan, consequences, step = epoch.plan, epoch.consequences, table.steps[number]
        until = self._complete_until(plan, table) if number == len(table.steps) - 1 else None
        commit = Commit(self._state.uuid, plan.epoch, number, complete_until=until)
        sets_wrote = CreateTarget | AdoptTarget | RecreateTarget | ApplyCascades | PlaceChunks | DeleteOlder
        outcome.wrote |= not isinstance(step, sets_wrote)
        outcome.was_recorded = False
        match step:
            case CreateTarget():
                self._sink.create(table.schema, self._rows.arrow(table.schema, "rows"))
            case AdoptTarget():
                adopting(self._sink).adopt(table.schema, self._rows.arrow(table.schema, "rows"))
            case RecreateTarget():
                table_sink(self._sink).clear(table.table)
                self._sink.create(table.schema, self._rows.arrow(table.schema, "rows"))
            case DropTarget():
                table_sink(self._sink).drop(table.table)
                outcome.dropped = True
            case ApplyEvents():
                mode = mode_of(step, partial_images=self._images.is_partial(table.table))
                events = self._rows.events(table.schema, step, epoch.outlines)
                outcome.was_recorded = not self._write(table, mode, events, commit)
                outcome.changes += self._rows.counts.take(table.table)
                outcome.written = True
            case ApplyCascades():
                consequences.check(table.table)
                rows = self._cascades.rows(consequences, table)
                if rows is not None:
                    outcome.was_recorded = not self._write(table, "merge", rows, commit)
                    outcome.written = outcome.wrote = True
            case PlaceChunks():
                self._place(epoch, table, step, commit, outcome)
            case TruncateTarget(timestamp_us=at, sequence=sequence):
                at_offset = plan.range.end if sequence is None else sequence
                done = self._sink.truncate(table.table, commit, sequence=at_offset, timestamp_us=at)
                outcome.was_recorded = not done
                outcome.truncated, outcome.written = True, False
            case Evolve():
                outcome.was_recorded = not self._evolve(table.table, step, commit)
                outcome.schema, outcome.kept_columns = step.schema, step.kept_columns
            case DeleteOlder():
                if outcome.voided:
                    return  # rows are still to be read
                outcome.wrote = True
                done = table_sink(self._sink).delete_older(table.table, step.sequence, commit)
                outcome.was_recorded = not done
                outcome.replaced = True
            case Park():
                raise TableError(step.reason, hint=step.hint, table=str(table.table), offset=step.offset)
            case _:
                assert_never(step)

    def _complete_until(self, plan: EpochPlan, table: TablePlan) -> str:
        """See `Commit.complete_until`."""
        known = self._state.table(table.table)
        if known is None or plan.complete_until_us is None or not (known.streaming and known.complete):
            return ""
        return datetime.fromtimestamp(plan.complete_until_us / 1_000_000, timezone.utc).isoformat()

    def _place(
        self, epoch: Epoch, table: TablePlan, step: PlaceChunks, commit: Commit, outcome: TableOutcome
    ) -> None:
        epoch.consequences.check(table.table)
        if table.table in epoch.consequences.unclear:
            refuse_rereads(self._state, table.table)
            outcome.voided.extend(step.chunks)
            return
        placed = self._rows.chunks(epoch.plan, table, step)
        if step.window is not None:
            placed = self._cascades.corrected(epoch.consequences, table, placed)
        outcome.was_recorded = not self._write(table, step.mode, placed, commit)
        outcome.placed.extend(step.chunks)
        outcome.chunks += len(step.chunks)
        outcome.rows += sum(staged.rows for staged in step.chunks)
        outcome.written = outcome.wrote = True

    def _write(self, table: TablePlan, mode: Mode, rows: Rows, commit: Commit) -> bool:
        """Returns False if the target has recorded the commit already."""
        key = table.schema.key
        if table.kept_columns is not None:
            rows = self._rows.in_kept_columns(
                table.kept_columns, rows, "changelog" if mode == "changes" else "latest"
            )
            kept = table.kept_columns
            names = {source: c.name for source, c in zip(kept.sources, kept.schema.columns, strict=True)}
            key = tuple(names[name] for name in key)
        match mode:
            case "changes" if isinstance(self._sink, VersionSink):
                return self._sink.write_versions(table.table, rows, key, commit)
            case "changes":
                return change_sink(self._sink).write_changes(table.table, rows, commit)
            case "append":
                return table_sink(self._sink).append(table.table, rows, commit)
            case "merge":
                return table_sink(self._sink).merge(table.table, rows, key, commit)
            case _:
                assert_never(mode)

    def _evolve(self, table: TableId, step: Evolve, commit: Commit) -> bool:
        if step.kept_columns is not None:
            arrow = self._rows.arrow(step.kept_columns.schema, "rows")
            columns = [EvolvedColumn(field, field.name, refills=True) for field in arrow]
        else:
            arrow = self._rows.arrow(step.schema, "rows")
            places = {name: place for place, name in enumerate(step.schema.key, 1)}
            columns = [
                EvolvedColumn(
                    field, origin.before, origin.default_sql, step.refills, places.get(field.name, 0)
                )
                for field, origin in zip(arrow, step.origins, strict=True)
            ]
        return self._sink.evolve(table, columns, commit, narrowing=self._narrowing)


class StepRows:
    """Makes the rows of steps. Nothing is decoded before a sink asks for it. Thread-safe.

    `before_images`: whether a change log also gets the rows before updates. `driver_bytes_max`: see
    `config.EpochConfig`. `fetched`: tasks run on other machines, and fetch the log.
    """

    def __init__(
        self,
        spark: SparkSession,
        state: StateStore,
        images: IncompleteImages,
        staging: Staging,
        *,
        types: TypeOptions,
        before_images: bool,
        driver_bytes_max: int,
        fetched: bool = False,
    ) -> None:
        self._spark = spark
        self._state = state
        self._images = images
        self._staging = staging
        self._types = types
        self._before_images = before_images
        self._driver_bytes_max = driver_bytes_max
        self._fetched = fetched
        self.counts = RowCounts(spark)
        self._cores = max(1, spark.sparkContext.defaultParallelism)

    def arrow(self, schema: TableSchema, layout: str, *, partial_images: bool = False) -> pa.Schema:
        """The Arrow schema of a table's rows in a layout: see `penstock._core.arrow_schema`."""
        from penstock._core import arrow_schema

        return arrow_schema(schema.to_json(), layout, self._types.to_json(), partial_images)

    def events(self, schema: TableSchema, step: ApplyEvents, outlines: Outlines) -> Rows:
        """The rows of the table's events. `outlines`: those that are known."""
        is_partial = step.mode != "changes" and self._images.is_partial(schema.table)
        incomplete = self._incomplete(schema) if is_partial else None
        positions = tuple(outlines.positions(schema.table, split) for split in step.splits)
        task = tasks.DecodeTask(
            schema.to_json(),
            step.splits,
            "changelog" if step.mode == "changes" else "latest",
            self._types,
            before_images=step.mode != "changes" or self._before_images,
            computation=self._images.computation(schema),
            positions=positions,
        )
        if is_partial:
            task = replace(task, partial_images=True, defaults=self._images.omitted(schema))
            if self._images.has_moved_rows(schema.table):
                with crossing(str(schema.table)).guard():
                    moved = tasks.moved_rows(task)
                found = self._images.completion(schema, moved, step.splits[-1].end)
                task = replace(task, moved="taken", completion=found)
                incomplete = self._incomplete(schema)
        way = strategy.for_events(
            step, partial_images=is_partial, cores=self._cores, driver_bytes_max=self._driver_bytes_max,
            fetched=self._fetched,
        )  # fmt: skip
        decode = self.counts.begin(schema.table)
        kind = strategy.kind_of(way, incomplete, in_driver=partial(_in_driver, decode.whole(), task))
        match way:
            case strategy.TaskPerSplit():
                return self._rows(schema, "changelog", decode, _per_split(task), kind)
            case strategy.SharesOfRange(tasks=count):
                work = tuple(
                    replace(task, bucket=(share, count) if count > 1 else None) for share in range(count)
                )
                return self._rows(schema, "latest", decode, work, kind)
            case strategy.ShuffleByKey(tasks=count):
                reduced = self._rows(schema, "latest", decode, _per_split(task), kind).frame
                by_key = reduced.repartition(count, *[f"`{name.replace('`', '``')}`" for name in schema.key])
                reduce = _reducer(task.table, self._types, str(schema.table))
                return Rows(map_batches(by_key, reduce, reduced.schema), kind)
            case _:
                assert_never(way)

    def chunks(self, plan: EpochPlan, table: TablePlan, step: PlaceChunks) -> Rows:
        """The rows of staged chunks, without those that are newer in the log."""
        schema = table.schema
        layout: Literal["latest", "changelog"] = "changelog" if step.mode == "changes" else "latest"
        task = tasks.PlaceTask(
            schema.to_json(),
            self._staging,
            step.chunks,
            step.scans,
            plan.range.end,
            layout,
            self._types,
            self._images.omitted(schema) if schema.key and step.scans else None,
        )
        way = strategy.for_chunks(step, cores=self._cores, driver_bytes_max=self._driver_bytes_max)
        work = tuple(replace(task, chunks=step.chunks[share :: way.tasks]) for share in range(way.tasks))
        kind = strategy.kind_of(way, None, in_driver=partial(_in_driver, tasks.place, task))
        return self._rows(schema, layout, tasks.place, work, kind)

    def in_kept_columns(self, kept: KeptColumns, rows: Rows, layout: str) -> Rows:
        """The rows with only the columns that the target keeps."""
        arrow = self.arrow(kept.schema, layout, partial_images=rows.incomplete is not None)
        own = [own_name(public(name), rows.frame.columns) for name in arrow.names[len(kept.sources) :]]
        projection = Projection(arrow, (*kept.sources, *own))
        schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
        names = [column.name for column in kept.schema.columns]
        sources = dict(zip(names, kept.sources, strict=True))
        return rows.changed(projection, sources, lambda: map_batches(rows.frame, projection, schema))

    def _incomplete(self, schema: TableSchema) -> Incomplete:
        """Describes which columns the rows have. While the table's chunks, or a resnapshot that became
        pending in this epoch, are still to bring rows, a row may be missing at the target."""
        state = self._state.table(schema.table)
        places = {column.name: place for place, column in enumerate(schema.columns)}
        is_complete = (state is None or state.rows_read) and not self._images.misses_rows(schema.table)
        return Incomplete(places, target_is_complete=is_complete)

    def _rows(
        self,
        schema: TableSchema,
        layout: str,
        run: Callable[[Any], tasks.Batches],
        work: tuple[Any, ...],
        kind: RowKind,
    ) -> Rows:
        arrow = self.arrow(schema, layout, partial_images=isinstance(kind, Incomplete))
        spark_schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
        count, name = len(work), str(schema.table)

        def make(consume: Consume | None, result: Any) -> DataFrame:
            indexes = self._spark.range(0, count, 1, count)
            return indexes.mapInArrow(tasks.run_tasks(run, work, name, consume), result)

        def compute(what: Computed, consume: Consume, result: Any) -> DataFrame:
            fields = [pa.field(tasks.NUMBER, pa.int32()), *what.needed]
            given = from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)
            indexes = self._spark.range(0, count, 1, count)
            first = tasks.needed_columns(run, work, name, what.change, what.needed.names)
            frame = what.select(indexes.mapInArrow(first, given))
            sequence = own_name(SEQUENCE, frame.columns)
            own = [one for one in (tasks.NUMBER, sequence) if one in frame.columns]
            found = frame.select(*map(quoted, [*own, *what.made]))
            return map_batches(found, tasks.with_columns(run, work, name, what.change, consume), result)

        again = None if any(getattr(one, "computation", None) for one in work) else compute
        return Rows(partial(make, None, spark_schema), kind, make, compute=again)


def _per_split(task: tasks.DecodeTask) -> tuple[tasks.DecodeTask, ...]:
    return tuple(replace(task, splits=(split,), positions=(at,)) for split, at in task.parts)


def _in_driver(
    run: Callable[[Any], tasks.Batches], task: tasks.DecodeTask | tasks.PlaceTask
) -> tasks.Batches:
    """Does the work of the task in this process."""
    with crossing(str(TableSchema.from_json(task.table).table)).guard():
        yield from ahead(run(task))


def ahead(batches: tasks.Batches, count: int = 2) -> Generator[pa.RecordBatch, None, None]:
    """The batches, of which another thread makes the next ones, while the caller writes this one."""

    def following() -> pa.RecordBatch | None:
        return next(batches, None)

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        waiting = deque(pool.submit(following) for _ in range(count))
        while (batch := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(following))
            yield batch


def _reducer(table: str, types: TypeOptions, name: str) -> Callable[[Any], tasks.Batches]:
    crosses = crossing(name)

    def body(batches: Any) -> tasks.Batches:
        with crosses.guard():
            yield from tasks.reduce_latest(table, types, batches)

    return body
