"""Tables that are read in one piece, as they were at one offset of the log.

A table needs this if a foreign key refers to the table itself. Chunks would be wrong for it: deleting a row
can delete another row of the table without an event in the log, and each of the two may be in a different
chunk.

Such a table is not part of epochs while it is read. Its rows are placed by an epoch of its own, which
contains no log, at exactly the offset of the read. From there the table catches up with the others. Changes
of its parent tables are stored for it in the meantime.

**How the offset is found.** One read view V is opened, with `low ⊆ V ⊆ prefix(high)` as for every chunk
(`placement.py`). V may or may not contain the transactions between the two watermarks. So the relay log is
asked about them. The view is used only if none of them changes the table or its parents. Then V shows these
tables as they were at the high watermark. The watermarks are taken directly before and after the view is
opened, not around the SELECT. So only some milliseconds of log lie between them. If a view cannot be used,
another one is opened.

**Who reads it.** The newest milliseconds of the log are only on the driver's machine. So where tasks run on
other machines, a thread of the driver reads the table (`snapshot/reader.py`). One session has to read all of
it in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.cascades.keys import is_read_whole, refers_to_itself, upstream
from penstock.errors import TransientError
from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import (
    AdoptTarget,
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
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.snapshot.chunk_log import Places
from penstock.snapshot.placement import Break
from penstock.sources.chunks import Views
from penstock.sources.windows import Window

VIEWS_SECONDS_MAX = 60.0
"""How long views are opened in search of a usable one. After that the error is reported and the read is
retried later."""
REACH_SECONDS_MAX = 30.0
"""How long the receiver may take to write the log up to a view's high watermark, which the source has
already reached."""
PAUSE_SECONDS = 0.01
"""Pause between two attempts or checks. The source's next group commit takes about as long."""


@dataclass(frozen=True)
class SingleView:
    """Reads a table in one piece. Implements `sources.chunks.ViewChoice`. `tables`: the table and all its
    ancestors by foreign keys. `after`: the offset of the read must be greater."""

    relay_log: LogPlace
    tables: frozenset[TableId]
    after: Offset

    def open(self, views: Views) -> tuple[Window, Offset]:
        """Opens a read view in the session and returns it with its offset. Raises `TransientError` if no
        usable view was found in time."""
        log = RelayLog.open(self.relay_log)
        deadline = time.monotonic() + VIEWS_SECONDS_MAX
        while True:
            opened = views.open_view()
            self._wait_for(log, opened, views.server_uuid)
            at = offset_of(opened, self.tables, log)
            if at is not None and at <= self.after and not _concerns(self.tables, LogRange(at, log.end), log):
                at = log.end  # the log of an idle source grows without transactions
            if at is not None and at > self.after:
                return opened, at
            if time.monotonic() > deadline:
                raise TransientError(
                    f"No view of {_named(self.tables)} could be placed in the log within "
                    f"{VIEWS_SECONDS_MAX:g} s: transactions on these tables follow each other too fast.",
                    hint="It is retried. If this repeats, write less to these tables for a minute.",
                )
            time.sleep(PAUSE_SECONDS)  # for the next group of commits

    def _wait_for(self, log: RelayLog, opened: Window, server_uuid: str) -> None:
        deadline = time.monotonic() + REACH_SECONDS_MAX
        log.refresh()
        while log.source_uuid != server_uuid or not log.reached(opened.end):
            if time.monotonic() > deadline:
                raise TransientError(
                    f"The relay log has not reached {opened.end}, the high watermark of a view."
                )
            time.sleep(PAUSE_SECONDS)  # the receiver writes it
            log.refresh()


def offset_of(opened: Window, tables: Iterable[TableId], log: RelayLog) -> Offset | None:
    """The offset at which the log describes the same rows of these tables as the view. None: unknown."""
    at = log.offset_reaching(opened.end)
    if at is None:
        return None
    between = LogRange(min(opened.visible_to(Places(log, not_after=at)), at), at)
    if not between:
        return at
    return None if _concerns(tables, between, log) else at


def _concerns(tables: Iterable[TableId], reach: LogRange, log: RelayLog) -> bool:
    """Whether something in this part of the log may change the tables."""
    return bool(log.statements(reach)) or not set(tables).isdisjoint(log.tables(reach, exact=True))


def single_view_of(
    tables: Callable[[], Mapping[TableId, TableState]], relay_log: LogPlace, table: TableState
) -> SingleView | None:
    """How the table is read in one piece; None: it can be read in chunks."""
    if not refers_to_itself(table.schema):
        return None
    schemas = {name: one.schema for name, one in tables().items()}
    after = Offset(max(table.replaces, table.start - 1))
    return SingleView(relay_log, frozenset(upstream(table.table, schemas)), after)


def _named(tables: Iterable[TableId]) -> str:
    return ", ".join(sorted(map(str, tables)))


def void_reason(state: TableState, staged: StagedChunk, breaks: Iterable[Break]) -> str | None:
    """Why the rows that were read can no longer be placed; None: they can. `breaks`: those up to the
    current position."""
    at = staged.at
    if at is None:
        return "its place in the log is not known"
    if at < state.start or (state.replaces and at <= state.replaces):
        return "it was read before the table's start"
    if staged.schema_version != state.schema.version:
        return "its definition changed since it was read"
    return next((f"{one.what} came after it was read" for one in breaks if one.end > at), None)


def placement_plan(state: TableState, staged: StagedChunk) -> TablePlan:
    """The plan that places the rows. Rows of an earlier snapshot are deleted at its end."""
    assert staged.at is not None
    mode: Mode = "merge" if state.written or state.replaces else "append"
    steps = [*first_steps(state), PlaceChunks((staged,), (), mode)]
    if state.replaces:
        steps.append(DeleteOlder(staged.at))
    return TablePlan(state.schema, tuple(steps), staged.at, state.kept_columns)


def catching_up_later(
    reach: LogRange, tables: Mapping[TableId, TableState], log: RelayLog
) -> tuple[TableSchema, ...]:
    """Tables that will process this range of the log later, on their own, and whose parent tables change in
    it. What foreign keys did to them is stored for later."""
    later = [
        one
        for one in tables.values()
        if is_read_whole(one) or (is_catching_up(one) and refers_to_itself(one.schema))
    ]
    later = [one for one in later if any(key.parent != one.table for key in one.schema.foreign_keys)]
    if not later or not reach:
        return ()
    touched = set(log.tables(reach, exact=True))
    schemas = {one.table: one.schema for one in tables.values()}
    return tuple(one.schema for one in later if (upstream(one.table, schemas) - {one.table}) & touched)


def first_steps(state: TableState) -> list[Step]:
    """The steps that prepare the target of a table that starts."""
    if state.target_reset == "recreate":
        return [RecreateTarget()]
    steps: list[Step] = []
    if state.target_reset == "adopt":
        steps.append(AdoptTarget())
    elif state.last_epoch <= 0:
        steps.append(CreateTarget())
    if state.target_reset == "truncate":
        # This sequence is above all rows of the earlier table, and below all rows of this one.
        steps.append(TruncateTarget(None, state.replaces or Offset(state.start - 1)))
    if state.target_reset != "none":
        origins = tuple(ColumnOrigin(column.name) for column in state.schema.columns)
        steps.append(Evolve(state.schema, origins, refills=True, kept_columns=state.kept_columns))
    return steps
