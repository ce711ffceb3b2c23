"""Records an applied epoch in the state store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.epochs.table_outcome import TableOutcome, only_makes, resnapshot_reason
from penstock.model.chunk import StagedChunk
from penstock.model.offset import Offset
from penstock.model.plan import ApplyEvents, EpochPlan, Move, Park
from penstock.model.table import CatchingUp, Phase, Reading, Streaming, TableState
from penstock.state import StateStore

log = logging.getLogger(__name__)


def record(
    state: StateStore,
    plan: EpochPlan,
    outcomes: list[TableOutcome],
    lost: Sequence[Move] = (),
    *,
    discard: Callable[[StagedChunk], None],
    rereads_max: int,
    merges: bool,
) -> None:
    """Records the epoch, its tables and its chunks in one transaction. `lost`: moves whose target did not
    exist any more. `discard`: removes a staged chunk. `rereads_max`: how often in 24 hours a table is read
    again automatically for the same reason. `merges`: whether the sink merges rows."""
    with state.transaction():
        for outcome in outcomes:
            _record_table(state, plan, outcome, discard, rereads_max=rereads_max, merges=merges)
        for move in lost:
            table = state.table(move.target)
            if table is not None:
                state.put_table(table.read_again(f"the target of {move.source} was gone"))
        state.applied(plan)


def _record_table(
    state: StateStore,
    plan: EpochPlan,
    outcome: TableOutcome,
    discard: Callable[[StagedChunk], None],
    *,
    rereads_max: int,
    merges: bool,
) -> None:
    table = state.table(outcome.table)
    if table is None:
        return
    planned = next(table for table in plan.tables if table.table == outcome.table)
    if table.start != planned.start or table.gone or outcome.dropped:
        # The statement at the epoch's end replaced the table by another one. This plan is the earlier one's.
        if outcome.dropped:
            table = replace(table, last_epoch=0, target_reset="none", kept_columns=None, written=False)
        elif outcome.parked is None:
            table = replace(table, last_epoch=plan.epoch)
        state.put_table(table)
        return
    if outcome.parked is not None:
        state.put_table(replace(table, written=table.written or outcome.written))
        offset = Offset(outcome.parked.details.get("offset", plan.range.start))
        # A target that keeps changes would lose those up to the next read.
        loses = isinstance(failed := outcome.failed, ApplyEvents) and failed.mode == "changes"
        may = rereads_max and not (loses and outcome.parked.details.get("lacks"))
        again = resnapshot_reason(state, outcome.parked, rereads_max) if may else ""
        if not again:
            log.warning("%s is parked: %s", outcome.table, outcome.parked)
        state.park(
            outcome.table,
            offset=offset,
            reason=outcome.parked.message,
            hint=outcome.parked.hint,
            resnapshot=again,
            resumes=None if again else _resumes(table, plan, outcome, merges=merges),
        )
        return
    for staged in outcome.voided:
        discard(staged)
        state.chunk_void(staged.chunk)
    state.chunks_placed(outcome.placed)
    phase = _after_last_chunk(table.phase)
    if phase != table.phase and not set(state.chunk_counts(outcome.table)) <= {"placed"}:
        phase = table.phase
    state.put_table(
        replace(
            table,
            schema=outcome.schema or table.schema,
            kept_columns=outcome.kept_columns if outcome.schema else table.kept_columns,
            written=outcome.written or (table.written and not outcome.truncated),
            last_epoch=plan.epoch if outcome.wrote or only_makes(planned) else table.last_epoch,
            phase=phase,
            replaces=Offset(0) if outcome.replaced else table.replaces,
            target_reset="none",
        )
    )


def _after_last_chunk(phase: Phase) -> Phase:
    """The phase of a table after all its chunks are placed. While the table is still being split, it stays
    the same."""
    match phase:
        case Reading(splitting=False):
            return Streaming(snapshot_done=True)
        case CatchingUp(then=Reading(splitting=False)):
            return replace(phase, then=Streaming(snapshot_done=True))
    return phase


def _resumes(state: TableState, plan: EpochPlan, outcome: TableOutcome, *, merges: bool) -> Offset | None:
    """The offset from which a parked table can continue one day; None: it must be read again. It can
    continue if its target has everything up to this offset, and if writing later changes twice does no
    harm."""
    if not state.complete or outcome.parked is None or outcome.parked.details.get("partial"):
        return None
    if isinstance(outcome.failed, Park):
        return outcome.failed.resumes
    return plan.range.start if merges or not outcome.committed else None
