"""From "the log has grown, chunks are staged" to the durable plan of the next epoch.

A plan is made only while no other is waiting to be applied, so a table's state in the store is what the last
epoch left. An epoch ends

- at a transaction end, at most `bytes_max` after its start (soft: it holds at least one whole transaction),
- at the first statement that does something to a captured table (DDL, or DML in statement format): the events
  before it are decoded with the schema before it, and the statement is the epoch's last step,
- at an offset somebody asked for (`penstock verify`).

What the planner cannot capture it parks, with the offset, the reason and the cure (invariant 6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from penstock.model.chunk import StagedChunk
from penstock.model.effect import TableEffect
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import (
    AddColumns,
    ApplyEvents,
    CreateTarget,
    DeleteOlder,
    EpochPlan,
    Mode,
    Park,
    PlaceChunks,
    Scan,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.reader import RelayLog, Statement
from penstock.snapshot.place import (
    Break,
    EpochEnd,
    Placed,
    PlacementLimits,
    ReadAgain,
    TableAtEnd,
    Void,
    place_all,
    shared_scans,
)
from penstock.state import SnapshotStatus, StateStore, TableState, new_table

log = logging.getLogger(__name__)

WHOLE_BYTES = 1 << 62
LATEST_SPLIT_BYTES = 64 * 1024**2
"""Row events of a split are listed before they are read backwards, so this bounds a task's memory."""
CHANGELOG_SPLIT_BYTES = 32 * 1024**2


class StatementReader(Protocol):
    """Judges statements. `live` are the tables whose events are planned, with the schema the log is at."""

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]: ...


@dataclass(frozen=True)
class PlannerLimits:
    epoch_bytes_max: int
    placement: PlacementLimits


class Planner:
    """Plans epochs into the state store. Not thread-safe; called by one loop."""

    def __init__(
        self,
        state: StateStore,
        relay_log: RelayLog,
        statements: StatementReader,
        *,
        append_only: bool,
        server_uuid: Callable[[], str],
        discard: Callable[[StagedChunk], None],
        limits: PlannerLimits,
    ) -> None:
        self._state = state
        self._log = relay_log
        self._statements = statements
        self._append_only = append_only
        self._server_uuid = server_uuid
        self._discard = discard
        self._limits = limits
        self._breaks: dict[TableId, list[Break]] = {}

    def plan_next(self, cuts: Iterable[Offset] = ()) -> EpochPlan | None:
        """Plans one epoch if there is anything to do; otherwise moves the position over what concerns nobody.

        Before: no plan is pending. After: the plan returned is durable.
        """
        self._log.refresh()
        start = self._state.position
        assert start is not None, "the pipeline sets the first position before it plans"
        end = self._log.cut(start, self._limits.epoch_bytes_max)
        end = min([end, *(cut for cut in cuts if start < cut)])
        tables = self._state.tables()
        effects: list[TableEffect] = []
        if end > start:
            end, effects = self._first_effect(LogRange(start, end), tables)
        reach = LogRange(start, end)
        epoch = self._state.last_epoch() + 1
        plans = self._table_plans(reach, tables, effects)
        created = [effect for effect in effects if effect.created is not None]
        if not plans and not created:
            if end > start:
                self._state.advance(end)
            return None
        plan = EpochPlan(epoch, reach, tuple(plans))
        with self._state.transaction():
            for effect in created:
                assert effect.created is not None
                snapshot: SnapshotStatus = "splitting" if effect.fills else "none"
                self._state.put_table(
                    new_table(effect.created, end, snapshot=snapshot, append_only=self._append_only)
                )
                for step in effect.steps:
                    if isinstance(step, Park):
                        self._state.park(effect.table, offset=end, reason=step.reason, hint=step.hint)
            self._state.plan(plan)
        return plan

    def _first_effect(
        self, reach: LogRange, tables: dict[TableId, TableState]
    ) -> tuple[Offset, list[TableEffect]]:
        """The end of the first statement in the range that concerns a captured table, and what it does."""
        live = {name: state.schema for name, state in tables.items() if state.status == "live"}
        for statement in self._log.statements(reach):
            found = [
                effect
                for effect in self._statements.effects(statement, live)
                if self._concerns(effect, statement, tables)
            ]
            if found:
                for effect in found:
                    if effect.voids:
                        self._breaks.setdefault(effect.table, []).append(Break(statement.end, effect.voids))
                return statement.end, found
        return reach.end, []

    def _concerns(self, effect: TableEffect, statement: Statement, tables: dict[TableId, TableState]) -> bool:
        state = tables.get(effect.table)
        if state is None:
            return effect.created is not None
        # A table that starts later was read after this statement; a parked one is left alone.
        return effect.created is None and state.status == "live" and state.start < statement.end

    def _table_plans(
        self, reach: LogRange, tables: dict[TableId, TableState], effects: list[TableEffect]
    ) -> list[TablePlan]:
        touched = self._log.tables(reach) if reach else {}
        by_table = {effect.table: effect for effect in effects}
        plans = []
        for state in tables.values():
            if state.status != "live":
                continue
            effect = by_table.get(state.table)
            steps: list[Step] = []
            if state.last_epoch <= 0:
                steps.append(CreateTarget(anew=state.last_epoch < 0))
            if state.table in touched and state.start < reach.end:
                steps += self._event_steps(state, reach)
            steps += self._chunk_steps(state, reach, effect)
            steps += self._timed(effect.steps, reach.end) if effect is not None else ()
            if steps:
                plans.append(TablePlan(state.schema, tuple(steps)))
        return plans

    def _timed(self, steps: tuple[Step, ...], end: Offset) -> list[Step]:
        """A change log says when a table was emptied: the statement that ends at `end` did it."""
        return [
            replace(step, timestamp_us=self._log.commit_time_us_at(end))
            if isinstance(step, TruncateTarget)
            else step
            for step in steps
        ]

    def _event_steps(self, state: TableState, reach: LogRange) -> list[Step]:
        part = LogRange(max(state.start, reach.start), reach.end)
        events, size = self._log.tables(part).get(state.table, (0, 0))
        if not events:
            return []
        if self._append_only:
            splits = self._log.splits(part, state.table, bytes_aim=CHANGELOG_SPLIT_BYTES)
            return [ApplyEvents(tuple(splits), "changes", size)] if splits else []
        splits = self._log.splits(part, state.table, bytes_aim=LATEST_SPLIT_BYTES)
        mode: Mode = "merge" if state.written or state.replaces else "append"
        return [ApplyEvents(tuple(splits), mode, size)] if splits else []

    def _chunk_steps(self, state: TableState, reach: LogRange, effect: TableEffect | None) -> list[Step]:
        """Places what is due. Chunks that cannot be placed any more are set back to be read again."""
        if state.snapshot not in ("splitting", "reading"):
            return []
        if state.replaces and reach.end <= state.replaces:
            return []  # a row placed at the start itself would not be newer than one placed there before
        staged = [item.staged for item in self._state.chunks(state.table, "staged") if item.staged]
        placed: list[Placed] = []
        for placement in self._placements(state, reach, effect, staged):
            if isinstance(placement, Placed):
                placed.append(placement)
            elif isinstance(placement, Void | ReadAgain):
                log.info(
                    "%s chunk %d is read again: %s",
                    state.table,
                    placement.chunk.chunk.number,
                    placement.reason,
                )
                self._discard(placement.chunk)
                self._state.chunk_void(placement.chunk.chunk)
        steps = [step for mode in ("append", "merge") for step in self._place_steps(state, placed, mode)]
        if state.replaces and not self._append_only and self._last_of_snapshot(state, placed):
            steps.append(DeleteOlder(Offset(state.replaces + 1)))
        return steps

    def _placements(
        self, state: TableState, reach: LogRange, effect: TableEffect | None, staged: list[StagedChunk]
    ) -> list[Any]:
        position = self._log.position_at(reach.end)
        if not staged or position is None:
            return []
        version = state.schema.version
        for step in effect.steps if effect is not None else ():
            version = step.schema.version if isinstance(step, AddColumns) else version
        at_end = TableAtEnd(
            start=state.start,
            start_gtids=str(self._log.gtids_at(state.start)),
            schema_version=version,
            fresh=not state.replaces,
            breaks=tuple(self._breaks_of(state, reach)),
        )
        end = EpochEnd(reach, position, self._server_uuid())
        return list(place_all(staged, end, at_end, _Index(self._log), self._limits.placement))

    def _breaks_of(self, state: TableState, reach: LogRange) -> list[Break]:
        """Statements since the table's start that void chunks. After a restart they are read from the log
        again."""
        if state.table not in self._breaks:
            live = {state.table: state.schema}
            past = LogRange(state.start, max(state.start, reach.start))
            self._breaks[state.table] = [
                Break(statement.end, effect.voids)
                for statement in self._log.statements(past)
                for effect in self._statements.effects(statement, live)
                if effect.table == state.table and effect.voids
            ]
        return self._breaks[state.table]

    def _place_steps(self, state: TableState, placed: list[Placed], mode: Mode) -> list[Step]:
        group = [item for item in placed if item.mode == mode]
        if not group:
            return []
        scans = []
        for scan in shared_scans(group):
            splits = tuple(self._log.splits(scan.range, state.table, bytes_aim=WHOLE_BYTES))
            if splits and state.schema.key:
                scans.append(Scan(splits, scan.exclude_gtids))
        chunks = tuple(item.chunk for item in group)
        return [PlaceChunks(chunks, tuple(scans), "changes" if self._append_only else mode)]

    def _last_of_snapshot(self, state: TableState, placed: list[Placed]) -> bool:
        counts = self._state.chunk_counts(state.table)
        waiting = counts.get("planned", 0) + counts.get("staged", 0)
        return state.snapshot == "reading" and bool(placed) and waiting == len(placed)


class _Index:
    """`snapshot.place.LogIndex` over the relay log."""

    def __init__(self, relay_log: RelayLog) -> None:
        self._log = relay_log
        self._known: dict[str, Offset] = {}

    def window_start(self, gtids: str) -> Offset:
        from penstock._core import GtidSet

        if gtids not in self._known:
            self._known[gtids] = self._log.window_start(GtidSet(gtids), not_after=self._log.end)
        return self._known[gtids]

    def table_bytes(self, table: str, log_range: LogRange) -> int:
        return self._log.tables(log_range).get(TableId.parse(table), (0, 0))[1]
