"""The outcome of one table's plan, and its consequences for the table."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import TableError
from penstock.model.plan import (
    AdoptTarget,
    ApplyCascades,
    ApplyEvents,
    CreateTarget,
    Evolve,
    KeptColumns,
    Park,
    PlaceChunks,
    RecreateTarget,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import DEFINITION_DOES_NOT_FIT
from penstock.printable import argument
from penstock.state import StateStore

REREADS_COUNTED_SECONDS = 24 * 3600
"""The period in which `schema.rereads_max` counts."""
READS_MAX = 20
"""A chunk is read at most so often because of foreign keys. Then the table changes too fast for chunks."""


@dataclass
class TableOutcome:
    """The outcome of one table's plan. `parked`: the error that stopped it in the step `failed`.
    `committed`: number of earlier steps that changed the target. `wrote`: whether a step wrote anything."""

    table: TableId
    changes: int = 0
    """Rows of the log that were written."""
    chunks: int = 0
    rows: int = 0
    version: str | None = None
    schema: TableSchema | None = None
    written: bool = False
    truncated: bool = False
    replaced: bool = False
    dropped: bool = False
    kept_columns: KeptColumns | None = None
    parked: TableError | None = None
    failed: Step | None = None
    committed: int = 0
    was_recorded: bool = False
    """Whether the target had recorded the last step already."""
    wrote: bool = False
    voided: list[Any] = field(default_factory=list)
    """Chunks that could not be placed and are read again."""
    seconds: float = 0.0
    placed: list[Any] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "changes": self.changes,
            "chunks": self.chunks,
            "rows": self.rows,
            "version": self.version,
            "seconds": round(self.seconds, 3),
        } | ({"parked": self.parked.message} if self.parked else {})


def outcome_of(plan: TablePlan) -> TableOutcome:
    """What a plan does to its table where rows are only added, and all of its steps take effect together."""
    outcome = TableOutcome(plan.table)
    for step in plan.steps:
        match step:
            case ApplyEvents():
                outcome.written = outcome.wrote = True
            case PlaceChunks():
                outcome.placed.extend(step.chunks)
                outcome.chunks += len(step.chunks)
                outcome.rows += sum(staged.rows for staged in step.chunks)
                outcome.written = outcome.wrote = True
            case TruncateTarget():
                outcome.truncated, outcome.written, outcome.wrote = True, False, True
            case Evolve():
                outcome.schema, outcome.kept_columns, outcome.wrote = step.schema, step.kept_columns, True
            case Park():
                outcome.failed, outcome.committed = step, 1
                outcome.parked = TableError(
                    step.reason, hint=step.hint, table=str(plan.table), offset=step.offset
                )
                return outcome
    return outcome


def resnapshot_reason(state: StateStore, error: TableError, rereads_max: int) -> str:
    """Why a table that was stopped by an error is read again automatically. Empty: it stays parked until an
    operator acts."""
    if error.details.get("definition_differs"):
        return DEFINITION_DOES_NOT_FIT
    if not error.details.get("read_again"):
        return ""
    since_us = (time.time() - REREADS_COUNTED_SECONDS) * 1_000_000
    often = [
        one
        for one in state.history()
        if str(one.table) == error.details.get("table")
        and one.what == error.message
        and one.noted_us > since_us
    ]
    return error.message if len(often) < rereads_max else ""


def written_by_another(table: TableId, epoch: int) -> TableError:
    """The error for a target that has an epoch which this driver has only now begun."""
    return TableError(
        f"The target of {table} has epoch {epoch} of another driver of this pipeline, with rows of maybe "
        "another part of the log.",
        hint="Run one driver, and never a copy of its `state`. The table is read again.",
        table=str(table),
        read_again=True,
        partial=True,
    )


def only_makes(plan: TablePlan) -> bool:
    """Whether the plan only created a target, and its other steps had nothing to do."""
    makes = CreateTarget | AdoptTarget | RecreateTarget
    return any(isinstance(step, makes) for step in plan.steps) and all(
        isinstance(step, makes | ApplyCascades) for step in plan.steps
    )


def refuse_rereads(state: StateStore, table: TableId) -> None:
    """Raises `TableError` if a chunk of the table has already been read too often."""
    if any(chunk.reads > READS_MAX for chunk in state.chunks(table)):
        raise TableError(
            f"Foreign keys changed rows of {table} during each of more than {READS_MAX} reads of a chunk, "
            "so it is unknown which rows depend on which.",
            hint=f"Run `penstock resnapshot FILE {argument(table)}` at a time with fewer deletes in it and "
            "in its parent tables.",
            table=str(table),
        )
