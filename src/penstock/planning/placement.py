"""Decides which chunks a plan places, and which of their rows are left out. `snapshot/placement.py` has the
rule; this module applies it to the state and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from penstock.cascades.keys import moves_rows
from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.plan import DeleteOlder, Mode, PlaceChunks, Scan, Step
from penstock.model.schema import TableId
from penstock.model.table import Reading, TableState
from penstock.planning.policy import Verdict
from penstock.planning.statement_effects import effects_in
from penstock.relaylog.reader import RelayLog
from penstock.snapshot.chunk_log import PlacementIndex
from penstock.snapshot.placement import (
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
from penstock.sources.statements import Statements
from penstock.sources.windows import Windows
from penstock.state import StateStore

log = logging.getLogger(__name__)

WHOLE_BYTES = 1 << 62
"""A number of bytes that is larger than any log, so that each segment is one split."""


class Placing:
    """Places chunks. Knows the statements that make chunks void (`breaks`)."""

    def __init__(
        self,
        state: StateStore,
        relay_log: RelayLog,
        statements: Statements,
        *,
        windows: Windows,
        append_only: bool,
        keeps_versions: Callable[[TableId], bool],
        discard: Callable[[StagedChunk], None],
        limits: PlacementLimits,
    ) -> None:
        self._state = state
        self._log = relay_log
        self._statements = statements
        self._windows = windows
        self._append_only = append_only
        self._keeps_versions = keeps_versions
        self._discard = discard
        self._limits = limits
        self._breaks: dict[TableId, list[Break]] = {}
        self._known: PlacementIndex | None = None

    @property
    def _index(self) -> PlacementIndex:
        if self._known is None or not self._known.is_current:
            self._known = PlacementIndex(self._log, self._windows)
        return self._known

    def voids(self, table: TableId, at: Break) -> None:
        """Records a statement that makes earlier chunks of the table void."""
        self._breaks.setdefault(table, []).append(at)

    def begins(self, table: TableId) -> None:
        """Records that the name now means another table, or that the table is read again from this offset
        on."""
        self._breaks.pop(table, None)

    def chunk_steps(
        self, state: TableState, reach: LogRange, verdict: Verdict | None, rows_max: int | None = None
    ) -> list[Step]:
        """Steps that place the chunks that can be placed now: at least one chunk, and at most `rows_max`
        rows. Chunks that can never be placed will be read again."""
        if not state.reading or (verdict is not None and verdict.state is not None):
            return []  # dropped, or read again
        if state.replaces and reach.end <= state.replaces:
            return []  # rows placed at the start would not be newer than those of the earlier snapshot
        staged = [item.staged for item in self._state.chunks(state.table, "staged") if item.staged]
        placed = _first(self._placed(state, reach, verdict, staged, state.start), rows_max)
        steps = [step for mode in ("append", "merge") for step in self._place_steps(state, placed, mode)]
        if state.replaces and not self._append_only and self._last_of_snapshot(state, placed):
            steps.append(DeleteOlder(Offset(state.replaces + 1)))
        return steps

    def partial_steps(
        self, state: TableState, partial: PartialSnapshot, reach: LogRange, verdict: Verdict | None
    ) -> list[Step]:
        """The steps for the chunks of one partial snapshot. Only one partial snapshot at a time, because two
        may contain the same rows."""
        changes = verdict is not None and verdict.state is not None
        if not state.streaming or changes or partial.status != "reading" or reach.end <= partial.since:
            return []
        chunks = self._state.chunks(state.table, "staged", snapshot=partial.number)
        staged = [item.staged for item in chunks if item.staged]
        if partial.part.keys:
            staged = staged[:1]  # two chunks may have found one row, under two spellings of its key
        since = Offset(max(state.start, partial.since))
        placed = self._placed(state, reach, verdict, staged, since, target_is_empty=False)
        return self._place_steps(state, placed, "merge")

    def _placed(
        self,
        state: TableState,
        reach: LogRange,
        verdict: Verdict | None,
        staged: list[StagedChunk],
        since: Offset,
        *,
        target_is_empty: bool = True,
    ) -> list[Placed]:
        """The chunks that can be placed at the end of the range. Discards those that must be read again."""
        placed: list[Placed] = []
        for placement in self._placements(
            state, reach, verdict, staged, since, target_is_empty=target_is_empty
        ):
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
        return placed

    def _placements(
        self,
        state: TableState,
        reach: LogRange,
        verdict: Verdict | None,
        staged: list[StagedChunk],
        since: Offset,
        *,
        target_is_empty: bool,
    ) -> list[Any]:
        """The decision about each staged chunk."""
        if not staged:
            return []
        at_end = TableAtEnd(
            start=since,
            start_state=self._index.state_at(since),
            schema_version=verdict.version if verdict is not None else state.schema.version,
            target_is_empty=target_is_empty and not (state.replaces or moves_rows(state.schema)),
            cascades=bool(state.schema.foreign_keys),
            breaks=tuple(self.breaks_of(state, reach)),
            redefined=self._state.version_at(state.table, since) not in (None, state.schema.version),
        )
        executed = any(self._index.window(one).holds_on_every_server for one in staged)
        state_at_end = self._index.state_at(reach.end, executed=executed)
        end = EpochEnd(reach, state_at_end, self._log.server_uuid_at(reach.end))
        return list(place_all(staged, end, at_end, self._index, self._limits))

    def breaks_of(self, state: TableState, reach: LogRange) -> list[Break]:
        """Statements since the table's start that make chunks void. After a restart they are read from the
        log again."""
        if state.table not in self._breaks:
            # A partial snapshot may come long after the table's start, when that part of the log is deleted.
            start = max(state.start, self._log.start)
            past = LogRange(start, max(start, reach.start))
            self._breaks[state.table] = [
                Break(statement.end, voids)
                for statement, effects in effects_in(
                    self._index,
                    past,
                    self._statements,
                    {state.table: state.schema},
                    lambda effect, _: effect.table == state.table,
                )
                for effect in effects
                if (voids := effect.voids or effect.rereads)
            ]
        return self._breaks[state.table]

    def _place_steps(self, state: TableState, placed: list[Placed], mode: Mode) -> list[Step]:
        """The step that places the chunks that have this mode."""
        group = [item for item in placed if item.mode == mode]
        if not group:
            return []
        scans = []
        for scan in shared_scans(group, self._windows.common):
            splits = tuple(self._log.splits(scan.range, state.table, bytes_aim=WHOLE_BYTES))
            if splits and state.schema.key:
                scans.append(Scan(splits, scan.seen))
        chunks = tuple(item.chunk for item in group)
        window = min(item.window for item in group) if state.schema.foreign_keys else None
        mode = "changes" if self._append_only or self._keeps_versions(state.table) else mode
        return [PlaceChunks(chunks, tuple(scans), mode, window)]

    def _last_of_snapshot(self, state: TableState, placed: list[Placed]) -> bool:
        """Whether the table's snapshot ends with these chunks."""
        counts = self._state.chunk_counts(state.table)
        waiting = counts.get("planned", 0) + counts.get("staged", 0)
        return state.phase == Reading(splitting=False) and bool(placed) and waiting == len(placed)


def _first(placed: list[Placed], rows_max: int | None) -> list[Placed]:
    """The first chunks with at most `rows_max` rows together, at least one chunk."""
    rows = accumulate(item.chunk.rows for item in placed)
    count = sum(total <= rows_max for total in rows) if rows_max is not None else len(placed)
    return placed[: max(1, count)]
