"""Executes one step of a plan against the sink."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from typing_extensions import assert_never

from penstock.errors import TableError
from penstock.model.plan import (
    AdoptTarget,
    ApplyCascades,
    ApplyEvents,
    CreateTarget,
    DeleteOlder,
    DropTarget,
    EpochPlan,
    Evolve,
    Mode,
    Park,
    PlaceChunks,
    RecreateTarget,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId
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
from penstock.sinks.rows import Rows
from penstock.spark.cascades import Cascades, Consequences
from penstock.spark.incomplete_images import IncompleteImages
from penstock.spark.step_rows import StepRows
from penstock.spark.strategy import mode_of
from penstock.spark.table_outcome import TableOutcome, refuse_rereads
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
