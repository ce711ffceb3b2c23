"""Updates the answer to a signal with the progress of each table, until that has ended."""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_never

from penstock.cascades.waiting import Operator, waits_for
from penstock.model.schema import TableId
from penstock.model.signal import Signal
from penstock.model.table import (
    CatchingUp,
    Dropped,
    Parked,
    Reading,
    Removed,
    ResnapshotPending,
    Streaming,
    TableState,
)
from penstock.state import StateStore

UNKNOWN = "unknown table"


def progress(state: StateStore, signal: Signal, name: TableId, item: dict[str, Any]) -> dict[str, Any]:
    """The progress of a signal for one table: `item` of the answer, updated. If the table no longer exists,
    its partial snapshot ends. `status`: `waiting`, `reading`, `done` or `stopped`."""
    if item.get("status") in ("done", "stopped"):
        return item
    table = state.table(name)
    if "partial_snapshot" in item:
        return _partial_progress(state, signal, table, item)
    match table.phase if table is not None else None:
        case None:
            return item | {"status": "stopped", "reason": UNKNOWN}
        case Dropped(reason=reason) | Removed(reason=reason):
            return item | {"status": "stopped", "reason": reason}
        case ResnapshotPending(parked=parked):
            if parked is not None and isinstance(waits_for(state.tables()).get(name), Operator):
                return item | {"status": "stopped", "reason": parked.reason, "hint": parked.hint}
            return item | {"status": "waiting"}
        case Parked(reason=reason, hint=hint):
            return item | {"status": "stopped", "reason": reason, "hint": hint}
        case Reading():
            return item | {"status": "reading"}
        case Streaming() | CatchingUp():
            rows, _ = state.rows_placed(name)
            return item | {"status": "done", "rows": rows}
        case phase:
            assert_never(phase)


def _partial_progress(
    state: StateStore, signal: Signal, table: TableState | None, item: dict[str, Any]
) -> dict[str, Any]:
    phase = table.phase if table is not None else None
    if phase is None or isinstance(phase, Dropped | Removed):
        state.end_partial(item["partial_snapshot"], "stopped", UNKNOWN if phase is None else phase.reason)
    [one] = [one for one in state.partials(signal=signal.id) if one.number == item["partial_snapshot"]]
    if one.status not in ("done", "stopped"):
        return item | {"status": "reading"}
    said: dict[str, Any] = {"status": one.status, "rows": one.rows, "chunks": one.chunks}
    return item | said | ({"reason": one.reason} if one.reason else {})
