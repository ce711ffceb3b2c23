"""Decides which of the tables that a pipeline knows it still follows, by `tables` of its file and by signals.

A table that `tables` does not name any more is left, as by a signal `remove-table`: its target stays, and
no more changes reach it. A table that is named again is read again, because changes were missed meanwhile.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from penstock.model.offset import Offset
from penstock.model.table import Change, Removed, ResnapshotPending, TableState
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

log = logging.getLogger(__name__)

NOT_NAMED = "`tables` of the pipeline file does not name it any more."


def follow_patterns(state: StateStore, captured: TableFilter, at: Offset) -> None:
    """Leaves tables that are not `captured` any more, and takes back those that are again. `at`: the end of
    what has been planned, all of which is applied."""
    for table in state.tables().values():
        if not table.gone and table.table not in captured:
            with state.transaction():
                leave(state, table, at, NOT_NAMED)
            log.warning("%s is not followed any more: %s Its target stays.", table.table, NOT_NAMED)
    take_back(state, captured, "`tables` names it again")


def take_back(state: StateStore, captured: TableFilter, why: str) -> None:
    """Tables that were left and are `captured` now are read again."""
    for table in state.tables().values():
        if isinstance(table.phase, Removed) and table.table in captured:
            state.put_table(replace(table, phase=ResnapshotPending(why)))


def leave(state: StateStore, table: TableState, at: Offset, reason: str) -> None:
    """Ends the work on a table. Must be called within a transaction of the state."""
    state.end_partials(table.table, "the table was removed")
    state.forget_chunks(table.table)
    state.put_table(replace(table, phase=Removed(at, reason)))
    state.add_change(Change(table.table, table.schema.version, at, "removed", "target kept"))
