"""A parked table comes back, because somebody asked (signal `unpark`).

It goes on from its own offset if nothing is lost to it: parking kept that offset (`TableState.resumes`), the
relay log still holds what came after it, and the target is as this pipeline left it. Then the table catches
up under epochs of its own (`Planner`), and joins the others. Else it is read again from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import Change, TableState
from penstock.relaylog.reader import RelayLog
from penstock.runtime import targets
from penstock.sinks.base import Missing, Sink
from penstock.state import StateStore


def unpark(
    state: StateStore,
    relay_log: RelayLog,
    sink: Sink,
    table: TableId,
    *,
    hold: Callable[[Offset], None],
) -> dict[str, Any]:
    """The answer: `action` is `continue` (from `offset`), `resnapshot` (with the `reason`) or `none` (the
    table is not parked).

    A table that is to be read again is `due` (`planning/resnapshots.py`). Raises `ConfigError` if the table
    stays as it is, with what keeps it.

    `hold` keeps the log behind an offset from being deleted (`relaylog.consumers.Consumer.hold`).
    """
    found = state.table(table)
    if found is None:
        raise ConfigError(
            f"The pipeline does not capture {table}.", hint="`penstock status FILE` lists its tables."
        )
    if found.status == "dropped":
        raise ConfigError(f"Table {table} is gone at the source; there is nothing to go on with.")
    if found.status == "removed":
        raise ConfigError(f"Table {table} was removed from this pipeline.", hint="Signal add-table for it.")
    if found.due:
        return {"ok": True, "action": "resnapshot", "reason": found.due}
    if found.status != "parked":
        return {"ok": True, "action": "none"}
    loss = _lost(found, relay_log, sink, state, hold)
    if loss is None:
        assert found.resumes is not None
        with state.transaction():
            state.put_table(replace(found, status="live", reason="", hint="", parked_at=None))
            what = f"goes on from offset {found.resumes}"
            state.note(Change(table, found.schema.version, found.resumes, what, "unparked"))
        return {"ok": True, "action": "continue", "offset": int(found.resumes)}
    state.put_table(replace(found, due=f"unparked; {loss}"))
    return {"ok": True, "action": "resnapshot", "reason": loss}


def _lost(
    table: TableState, relay_log: RelayLog, sink: Sink, state: StateStore, hold: Callable[[Offset], None]
) -> str | None:
    """Why a parked table cannot go on from where it is; None: it can."""
    if table.resumes is None:
        return "its changes since it was parked cannot be added to what its target holds"
    if table.schema.foreign_keys:
        return "what foreign keys changed while it was parked is not known"
    hold(table.resumes)
    relay_log.refresh()  # what it begins with now stays
    if relay_log.start > table.resumes:
        return f"the relay log begins at offset {relay_log.start}, after {table.resumes}, where it was parked"
    if table.last_epoch <= 0:
        return None  # its target is still to be made
    target = sink.open(table.table)
    if isinstance(target, Missing):
        return "its target is gone"
    targets.check_as_left(table, target, state)
    return None
