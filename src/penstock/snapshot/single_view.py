"""Tables that are read in one piece, as they stood at one offset of the log, because a foreign key makes
their rows hang on each other. Chunks would not do: a row may go, without an event, because of another that
went before its own chunk was read.

Such a table keeps out of epochs while it is read. Its rows are placed in an epoch of its own that holds no
log, at that very offset, and from there it catches up with the others. What happens meanwhile to the tables
it refers to is kept for it.

The offset. One read view is opened, `low ⊆ V ⊆ prefix(high)` as for every chunk (`placement.py`). What lies
between the marks may be in V or not; so the relay log is asked, and a view is taken only if nothing there
concerns the table or those that its rows change with. Then V shows these tables as they stood at the high
mark. Marks are taken right around the opening of the view, not around the SELECT, so the gap between them is
some milliseconds of log, and another view is opened until one fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.cascades.keys import is_held, refers_to_itself, upstream
from penstock.errors import TransientError
from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import (
    ColumnOrigin,
    CreateTarget,
    DeleteOlder,
    Evolve,
    Mode,
    PlaceChunks,
    RecreateTarget,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import TableState, is_catching_up
from penstock.relaylog.reader import RelayLog
from penstock.snapshot.chunk_log import Places
from penstock.snapshot.placement import Break
from penstock.sources.chunks import Views
from penstock.sources.windows import Window

VIEWS_SECONDS_MAX = 60.0
"""How long views are opened until one can be placed."""
REACH_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Whole:
    """`sources.chunks.ViewChoice`: how a table is read in one piece. `tables`: it and those that
    its rows change with. `after`: the offset must be greater."""

    relay_log: Path
    tables: frozenset[TableId]
    after: Offset

    def open(self, views: Views) -> tuple[Window, Offset]:
        """Leaves a view open in the session, and tells its offset. `TransientError` when none can be had."""
        log = RelayLog.open(self.relay_log)
        deadline = time.monotonic() + VIEWS_SECONDS_MAX
        while True:
            opened = views.open_view()
            self._wait_for(log, opened, views.server_uuid)
            at = offset_of(opened, self.tables, log)
            if at is not None and at > self.after:
                return opened, at
            if time.monotonic() > deadline:
                raise TransientError(
                    f"No view of {_named(self.tables)} could be placed in the log within "
                    f"{VIEWS_SECONDS_MAX:g} s: their transactions come too fast one after the other.",
                    hint="It is tried again; give the tables a quiet moment.",
                )
            time.sleep(PAUSE_SECONDS)  # for the next group of commits

    def _wait_for(self, log: RelayLog, opened: Window, server_uuid: str) -> None:
        deadline = time.monotonic() + REACH_SECONDS_MAX
        log.refresh()
        while log.source_uuid != server_uuid or not log.reached(opened.end):
            if time.monotonic() > deadline:
                raise TransientError(f"The relay log has not reached {opened.end}, where a view was opened.")
            time.sleep(PAUSE_SECONDS)  # the receiver writes it
            log.refresh()


def offset_of(opened: Window, tables: Iterable[TableId], log: RelayLog) -> Offset | None:
    """Where the log holds, of the tables, what the view shows; None: that is not certain."""
    at = log.offset_reaching(opened.end)
    if at is None:
        return None
    between = LogRange(min(opened.visible_to(Places(log, not_after=at)), at), at)
    if not between:
        return at
    if log.statements(between) or not set(tables).isdisjoint(log.tables(between, exact=True)):
        return None
    return at


def read_whole(
    tables: Callable[[], Mapping[TableId, TableState]], relay_log: Path, table: TableState
) -> Whole | None:
    """How a table is read that cannot be read in chunks; None: in chunks."""
    if not refers_to_itself(table.schema):
        return None
    schemas = {name: one.schema for name, one in tables().items()}
    return Whole(relay_log, frozenset(upstream(table.table, schemas)), table.replaces)


def _named(tables: Iterable[TableId]) -> str:
    return ", ".join(sorted(map(str, tables)))


def untrue(state: TableState, staged: StagedChunk, breaks: Iterable[Break]) -> str | None:
    """Why the rows cannot be placed; None: they can. `breaks`: up to the present position."""
    at = staged.at
    if at is None:
        return "its place in the log is not known"
    if at < state.start or (state.replaces and at <= state.replaces):
        return "it was read before the table's start"
    if staged.schema_version != state.schema.version:
        return "its definition changed since it was read"
    return next((f"{one.what} came after it was read" for one in breaks if one.end > at), None)


def placed_whole(state: TableState, staged: StagedChunk) -> TablePlan:
    """Rows from before leave the target behind it."""
    assert staged.at is not None
    mode: Mode = "merge" if state.written or state.replaces else "append"
    steps = [*first_steps(state), PlaceChunks((staged,), (), mode)]
    if state.replaces:
        steps.append(DeleteOlder(staged.at))
    return TablePlan(state.schema, tuple(steps), staged.at, state.kept)


def kept_for_later(
    reach: LogRange, tables: Mapping[TableId, TableState], log: RelayLog
) -> tuple[TableSchema, ...]:
    """Tables that come to this range later by themselves, and change with others that are touched in it."""
    later = [
        one
        for one in tables.values()
        if is_held(one) or (is_catching_up(one) and refers_to_itself(one.schema))
    ]
    later = [one for one in later if any(key.parent != one.table for key in one.schema.foreign_keys)]
    if not later or not reach:
        return ()
    touched = set(log.tables(reach, exact=True))
    schemas = {one.table: one.schema for one in tables.values()}
    return tuple(one.schema for one in later if (upstream(one.table, schemas) - {one.table}) & touched)


def first_steps(state: TableState) -> list[Step]:
    """What makes the target ready for a table that begins."""
    if state.target_reset == "recreate":
        return [RecreateTarget()]
    steps: list[Step] = []
    if state.last_epoch <= 0:
        steps.append(CreateTarget())
    if state.target_reset == "truncate":
        # Above everything of the table before, below everything of this one.
        steps.append(TruncateTarget(None, state.replaces or Offset(state.start - 1)))
    if state.target_reset != "none":
        origins = tuple(ColumnOrigin(column.name) for column in state.schema.columns)
        steps.append(Evolve(state.schema, origins, refills=True, kept=state.kept))
    return steps
