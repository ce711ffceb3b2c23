"""Plans the next epoch from the new log and the staged chunks, and makes the plan durable.

A plan is made only while no other plan is pending. So the state store shows each table as the last epoch
left it. An epoch ends

- at the end of a transaction, at most `bytes_max` after its start (a soft limit: it has at least one whole
  transaction),
- at the first statement that affects a captured table (DDL, or DML in statement format). The events before
  it are decoded with the schema before it, and the statement is the epoch's last step,
- at an offset that somebody requested (`penstock verify`).

A table that cannot be captured is parked, with the offset, the reason and a hint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from penstock.cascades.keys import below, hindered, is_read_whole
from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.plan import (
    ApplyCascades,
    ApplyEvents,
    DefinitionChange,
    EpochPlan,
    Evolve,
    Mode,
    PlaceChunks,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TypeOptions
from penstock.model.schema_change import TableEffect
from penstock.model.statement_head import statement_head
from penstock.model.table import (
    KEY_CHANGED,
    CatchingUp,
    Change,
    Dropped,
    Parked,
    Reading,
    Removed,
    ResnapshotPending,
    Streaming,
    TableState,
)
from penstock.planning import renames
from penstock.planning.placement import Placing
from penstock.planning.policy import Policies, Verdict, judge, new_state
from penstock.planning.statement_effects import definition_changes, effects_in
from penstock.relaylog.reader import RelayLog, Statement
from penstock.snapshot.placement import Break, PlacementLimits
from penstock.snapshot.single_view import catching_up_later, first_steps, placement_plan, void_reason
from penstock.sources.statements import Statements
from penstock.sources.windows import Windows
from penstock.state import StateStore

log = logging.getLogger(__name__)

DROPPED_BEHIND = "it was dropped while it was parked, and may exist again"
"""Reason for reading a table again. If it does not exist, it counts as dropped."""


@dataclass(frozen=True)
class PlannerLimits:
    """Limits of epochs and of placements."""

    epoch_bytes_max: int
    placement: PlacementLimits
    task_bytes: int
    """Log bytes of a split. A task lists the row events of its split before it reads them backwards, so
    this limits the task's memory."""
    snapshot_rows_max: int
    """Rows of chunks that an epoch places for a table while it has events of other tables, which wait until
    the epoch ends."""


@dataclass(frozen=True)
class Targets:
    """What planning asks of targets. `identify`: see `TableSink.identity`. `keeps_versions`: whether the
    target of a table takes every change (`VersionSink`). `tells_definitions`: plans say which definitions the
    statement at the epoch's end changed."""

    identify: Callable[[TableId], str | None] = lambda table: None
    keeps_versions: Callable[[TableId], bool] = lambda table: False
    tells_definitions: bool = False


class Planner:
    """Plans epochs. Not thread-safe: the pipeline's loop calls it."""

    def __init__(
        self,
        state: StateStore,
        relay_log: RelayLog,
        statements: Statements,
        *,
        windows: Windows,
        policies: Policies,
        discard: Callable[[StagedChunk], None],
        limits: PlannerLimits,
        targets: Targets = Targets(),
        cascades: TypeOptions | None = None,
    ) -> None:
        """`cascades`: how column types are mapped, if Penstock computes what foreign keys change; None: it
        does not."""
        self._state = state
        self._log = relay_log
        self._statements = statements
        self._policies = policies
        self._append_only = policies.append_only
        self._targets = targets
        self._discard = discard
        self._limits = limits
        self._placing = Placing(
            state,
            relay_log,
            statements,
            windows=windows,
            append_only=policies.append_only,
            keeps_versions=targets.keeps_versions,
            discard=discard,
            limits=limits.placement,
        )
        self._cascades = cascades
        self._caught_up = False  # whether tables that catch up had the last turn

    def plan_next(self, cuts: Iterable[Offset] = ()) -> EpochPlan | None:
        """Plans one epoch, if there is anything to do. Otherwise moves the position over log that concerns
        no table.

        No plan may be pending. The returned plan is durable.
        """
        self._log.refresh()
        start = self._state.position
        assert start is not None, "the pipeline sets the first position before it plans"
        tables = self._joined(self._followable(), start)
        # Tables that catch up take turns with all other tables.
        self._caught_up = not self._caught_up
        if (plan := self._place_whole(tables, start)) is not None:
            return plan
        if self._caught_up and (plan := self._catch_up(tables, start)) is not None:
            return plan
        end = self._log.cut(start, self._limits.epoch_bytes_max)
        end = min([end, *(cut for cut in cuts if start < cut)])
        found: list[TableEffect] = []
        statement: Statement | None = None
        if end > start:
            statement, found = self._first_effect(LogRange(start, end), tables)
            end = statement.end if statement is not None else end
        moves = renames.moves(found, tables, self._targets.identify, self._policies.shards)
        if moves and statement is not None:
            before = self._log.committed_before(statement.offset)
            if before > start:  # changes under the old names come first, in an epoch of their own
                statement, found, moves, end = None, [], (), before
        reach = LogRange(start, end)
        epoch = self._state.last_epoch() + 1
        verdicts = self._verdicts(found, tables, statement)
        verdicts = renames.verdicts(moves, tables, verdicts, end)
        plans = self._table_plans(reach, tables, verdicts)
        later = catching_up_later(reach, tables, self._log) if self._cascades is not None else ()
        told = self._definitions(found, tables)
        plan = None
        if plans or moves or told:
            plan = EpochPlan(epoch, reach, tuple(plans), moves, later, told, self._complete_until(end))
        with self._state.transaction():
            if statement is not None:
                self._record(statement, found, verdicts)
            if plan is not None:
                self._state.plan(plan)
            elif end > start:
                self._state.advance(end)
        return plan

    def _complete_until(self, end: Offset) -> int | None:
        """The time up to which the log is complete at `end`: just before the commit time of the last
        transaction. A transaction may get its time a while before it reaches the log, but everything that was
        committed before that time is in the log before it."""
        at = self._log.commit_time_us_at(end)
        return None if at is None else at - 1

    def _definitions(
        self, effects: list[TableEffect], tables: dict[TableId, TableState]
    ) -> tuple[DefinitionChange, ...]:
        if not self._targets.tells_definitions:
            return ()
        return definition_changes(effects, {name: one.schema for name, one in tables.items() if one.planned})

    def _joined(self, tables: dict[TableId, TableState], position: Offset) -> dict[TableId, TableState]:
        """Lets tables that have caught up continue together with the others, once their last own epoch is
        applied."""
        joining = {
            name: replace(state, phase=state.phase.then)
            for name, state in tables.items()
            if isinstance(state.phase, CatchingUp) and state.phase.at >= position
        }
        for state in joining.values():
            self._state.put_table(state)
        return tables | joining

    def _place_whole(self, tables: dict[TableId, TableState], position: Offset) -> EpochPlan | None:
        """Plans the rows of a table that was read in one piece. They are those of one offset in the log. If
        the pipeline's position is already greater, the table catches up from that offset."""
        for state in filter(is_read_whole, tables.values()):
            for item in self._state.chunks(state.table, "staged"):
                staged = item.staged
                if staged is None or (staged.at is not None and staged.at > position):
                    continue
                breaks = self._placing.breaks_of(state, LogRange(position, position))
                if (why := void_reason(state, staged, breaks)) is None:
                    return self._plan_whole(state, staged)
                log.info("%s is read again: %s", state.table, why)
                self._discard(staged)
                self._state.chunk_void(staged.chunk)
        return None

    def _plan_whole(self, state: TableState, staged: StagedChunk) -> EpochPlan:
        assert isinstance(state.phase, Reading)
        table = placement_plan(state, staged)
        plan = EpochPlan(self._state.last_epoch() + 1, LogRange(table.start, table.start), (table,))
        with self._state.transaction():
            self._state.plan(plan, alone=True)
            self._placing.begins(state.table)
            behind = CatchingUp(table.start, state.phase)
            self._state.put_table(replace(state, start=table.start, phase=behind))
        return plan

    def _catch_up(self, tables: dict[TableId, TableState], position: Offset) -> EpochPlan | None:
        """Plans an epoch of one table that is behind the position, with the part of the log that it missed.
        The other tables have that part already."""
        for state in tables.values():
            if isinstance(state.phase, CatchingUp):
                return self._catch_up_with(state, state.phase, position)
        return None

    def _catch_up_with(self, state: TableState, phase: CatchingUp, position: Offset) -> EpochPlan | None:
        end = min(self._log.cut(phase.at, self._limits.epoch_bytes_max), position)
        alone = {state.table: replace(state, phase=phase.then)}
        statement, found = self._first_effect(LogRange(phase.at, end), alone, alone=state.table)
        end = statement.end if statement is not None else end
        reach = LogRange(phase.at, end)
        verdicts = self._verdicts(found, alone, statement)
        plans = self._table_plans(reach, alone, verdicts, alone=True)
        plan = EpochPlan(self._state.last_epoch() + 1, reach, tuple(plans)) if plans else None
        with self._state.transaction():
            if statement is not None:
                self._record(statement, found, verdicts)
            if plan is not None:
                self._state.plan(plan, alone=True)
            now = self._state.table(state.table) or state
            match now.phase:
                case CatchingUp(then=then) | (Reading() | Streaming() as then):
                    self._state.put_table(replace(now, phase=CatchingUp(end, then)))
                case Dropped() if end < position:
                    # The others have passed what follows. It may say that a table has this name again.
                    self._state.put_table(replace(now, phase=ResnapshotPending(DROPPED_BEHIND)))
                case Parked() | ResnapshotPending() | Dropped() | Removed():
                    pass
                case _:
                    assert_never(now.phase)
        return plan

    def _followable(self) -> dict[TableId, TableState]:
        """Returns the tables. Those whose foreign keys cannot be followed are parked or read again before."""
        tables = self._state.tables()
        if self._cascades is None:
            return tables
        found = hindered(tables, self._cascades)
        at = self._state.position or Offset(0)
        for table, why in found.items():
            if why.parks:
                resnapshot = why.reason if why.resnapshots else ""
                self._state.park(table, offset=at, reason=why.reason, hint=why.hint, resnapshot=resnapshot)
            else:
                self._state.put_table(tables[table].read_again(why.reason))
        return self._state.tables() if found else tables

    def _first_effect(
        self, reach: LogRange, tables: dict[TableId, TableState], *, alone: TableId | None = None
    ) -> tuple[Statement | None, list[TableEffect]]:
        """The first statement in the range that affects a captured table (with `alone`: this table), and
        its effects."""

        def concerns(effect: TableEffect, statement: Statement) -> bool:
            return (alone is None or effect.table == alone) and self._concerns(effect, statement, tables)

        def follows(table: TableId, statement: Statement) -> bool:
            # The definition of a table with a later start was read after this statement.
            return tables[table].start < statement.end

        live = {name: state.schema for name, state in tables.items() if state.planned}
        for statement, found in effects_in(self._log, reach, self._statements, live, concerns, follows):
            for effect in found:
                if voids := effect.voids or effect.rereads:
                    self._placing.voids(effect.table, Break(statement.end, voids))
            return statement, found
        return None, []

    def _verdicts(
        self,
        effects: list[TableEffect],
        tables: dict[TableId, TableState],
        statement: Statement | None,
    ) -> dict[TableId, Verdict]:
        """The decisions about known tables. If a statement has several effects on a name (a table is
        dropped and another one takes its name), they are judged in order."""
        verdicts: dict[TableId, Verdict] = {}
        if statement is None:
            return verdicts
        for effect in effects:
            state = tables.get(effect.table)
            before = verdicts.get(effect.table)
            if before is not None:
                state = before.state or state
            if state is None or (effect.created is not None and not _is_known(state)):
                continue
            verdict = judge(state, effect, statement.end, self._policies, begin=statement.offset)
            if before is not None:
                verdict = replace(
                    verdict,
                    steps=before.steps + verdict.steps,
                    state=verdict.state or before.state,
                    what=f"{before.what}, {verdict.what}",
                )
            verdicts[effect.table] = verdict
        return verdicts

    def _record(
        self,
        statement: Statement,
        effects: list[TableEffect],
        verdicts: dict[TableId, Verdict],
    ) -> None:
        """Stores the statement's effects on the tables, which hold from the end of its epoch on, and the
        history."""
        at = self._log.commit_time_us_at(statement.end)
        head = statement_head(statement.sql)
        for table, verdict in verdicts.items():
            self._end_misplaced(table, verdict)
            if verdict.state is not None:
                self._state.forget_chunks(table)
                self._placing.begins(table)
                self._state.put_table(verdict.state)
            self._state.add_change(
                Change(table, verdict.version, statement.end, verdict.what, verdict.decision, head, at)
            )
        for effect in effects:
            if effect.table not in verdicts and effect.created is not None:
                state = new_state(effect, statement.end, self._policies)
                if self._state.began_after:  # the target of an earlier table may be left of an earlier state
                    state = replace(state, target_reset="truncate")
                self._state.put_table(state)
                what, decision = effect.what or "created", "captured" if state.planned else "parked"
                if state.resnapshot_pending:
                    decision = f"read again: {effect.rereads}"
                self._state.add_change(Change(effect.table, 1, statement.end, what, decision, head, at))

    def _end_misplaced(self, table: TableId, verdict: Verdict) -> None:
        """Ends partial snapshots that use a key which the table no longer has."""
        state = self._state.table(table)
        found = [step.schema for step in verdict.steps if isinstance(step, Evolve)]
        found += [verdict.state.schema] if verdict.state is not None else []
        if state is not None and found and found[-1].key_columns != state.schema.key_columns:
            self._state.end_partials(table, KEY_CHANGED)

    def _concerns(self, effect: TableEffect, statement: Statement, tables: dict[TableId, TableState]) -> bool:
        """Whether the effect matters to a table of the pipeline."""
        state = tables.get(effect.table)
        if state is None:
            return effect.created is not None
        if isinstance(state.phase, CatchingUp):
            return False  # the table reaches this statement when it catches up
        if effect.created is not None:
            # A table that is parked, or will be read again, was dropped unnoticed. The new one is read then.
            return isinstance(state.phase, Dropped) or (state.planned and state.start < statement.end)
        # A table with a later start was read after this statement. A parked table is not touched.
        return state.planned and state.start < statement.end

    def _table_plans(
        self,
        reach: LogRange,
        tables: dict[TableId, TableState],
        verdicts: dict[TableId, Verdict],
        *,
        alone: bool = False,
    ) -> list[TablePlan]:
        """The plan of each table for the range. `alone`: one table catches up."""
        touched = self._log.tables(reach, exact=True) if reach else {}
        planned = {state.table: state.schema for state in tables.values() if state.planned}
        cascaded = below(planned, touched.keys() & planned.keys()) if self._cascades is not None else set()
        if alone and self._cascades is not None:
            cascaded = {name for name, schema in planned.items() if schema.foreign_keys}
        partials: dict[TableId, list[PartialSnapshot]] = {}
        for one in self._state.partials():
            partials.setdefault(one.table, []).append(one)
        plans = []
        for state in tables.values():
            if not state.planned:
                continue
            verdict = verdicts.get(state.table)
            # A table that was created again ended the rows of the earlier one. One that is read did not.
            steps = first_steps(state) if state.reading else self._timed(first_steps(state), state.start)
            if not is_read_whole(state):
                if state.table in touched and state.start < reach.end:
                    steps += self._event_steps(state, reach, touched, alone)
                streams = any(name != state.table and name in planned for name in touched)
                rows_max = self._limits.snapshot_rows_max if streams else None
                chunks = self._placing.chunk_steps(state, reach, verdict, rows_max)
                for partial in partials.get(state.table, ()) if not chunks else ():
                    chunks = chunks or self._placing.partial_steps(state, partial, reach, verdict)
                if state.table in cascaded and state.start < reach.end:
                    has_rows = state.written and state.target_reset == "none"
                    steps.append(ApplyCascades(state.replaces, has_rows, state.reading, alone))
                steps += [
                    replace(one, newer=not alone) if isinstance(one, PlaceChunks) else one for one in chunks
                ]
            steps += self._timed(verdict.steps, reach.end) if verdict is not None else ()
            if steps:
                plans.append(TablePlan(state.schema, tuple(steps), state.start, state.kept_columns))
        return plans

    def _timed(self, steps: Iterable[Step], end: Offset) -> list[Step]:
        """Adds the time to steps that empty a table, for targets with a history. The statement that ends at
        `end` did it."""
        return [
            replace(step, timestamp_us=self._log.commit_time_us_at(end))
            if isinstance(step, TruncateTarget)
            else step
            for step in steps
        ]

    def _event_steps(
        self, state: TableState, reach: LogRange, touched: dict[TableId, tuple[int, int]], alone: bool
    ) -> list[Step]:
        """The step that applies the table's events. `alone`: the table catches up, and its target may
        already have some of them."""
        part = LogRange(max(state.start, reach.start), reach.end)
        events, size = touched.get(state.table, (0, 0))
        if part != reach:
            events, size = self._log.tables(part, exact=True).get(state.table, (0, 0))
        if not events:
            return []
        if self._append_only or self._targets.keeps_versions(state.table):
            splits = self._log.splits(part, state.table, bytes_aim=self._limits.task_bytes // 2)
            newer = not alone and not self._append_only
            return [ApplyEvents(tuple(splits), "changes", size, newer=newer)] if splits else []
        splits = self._log.splits(part, state.table, bytes_aim=self._limits.task_bytes)
        mode: Mode = "merge" if state.written or state.replaces else "append"
        return [ApplyEvents(tuple(splits), mode, size, newer=not alone)] if splits else []


def _is_known(state: TableState) -> bool:
    """Whether the pipeline has, or had, a target for the table."""
    return state.gone or state.planned
