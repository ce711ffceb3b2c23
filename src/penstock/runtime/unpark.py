"""Unparks a table, when the signal `unpark` asks for it.

The table continues from its own offset if nothing is lost: parking recorded that offset (`Parked.resumes`),
the relay log still has everything after it, and the target is as this pipeline left it. The table then
catches up in epochs of its own (`Planner`), and joins the others. Otherwise it is read again from its
beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from typing_extensions import assert_never

from penstock.cascades.waiting import Operator, waits_for
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import (
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
from penstock.relaylog.reader import RelayLog
from penstock.runtime import targets
from penstock.sinks.base import Missing, Sink
from penstock.state import StateStore


def unpark(
    state: StateStore,
    relay_log: RelayLog,
    sink: Sink | None,
    table: TableId,
    *,
    protect_log: Callable[[Offset], None],
) -> dict[str, Any]:
    """Returns the answer to the signal. `action` is `continue` (from `offset`), `resnapshot` (with the
    `reason`) or `none` (the table was not parked).

    With `resnapshot`, the resnapshot is pending afterwards (`planning/resnapshots.py`). Raises
    `ConfigError`, with the reason, if the table stays as it is. `protect_log` protects the log after an
    offset from deletion (`relaylog.consumers.Consumer.protect`). `sink`: None if
    nothing remains of what it writes, so that there are no targets to look at.
    """
    found = state.table(table)
    if found is None:
        raise ConfigError(
            f"The pipeline does not capture {table}.", hint="`penstock status FILE` lists its tables."
        )
    match found.phase:
        case Dropped():
            raise ConfigError(
                f"Table {table} does not exist at the source any more, so it cannot be unparked."
            )
        case Removed():
            raise ConfigError(
                f"Table {table} was removed from this pipeline.",
                hint="Name it in `tables` of the pipeline file, or signal add-table for it.",
            )
        case ResnapshotPending(why=why, parked=parked):
            if parked is not None and isinstance(waits_for(state.tables()).get(table), Operator):
                raise ConfigError(f"Table {table} stays parked: {parked.reason}", hint=parked.hint)
            return {"ok": True, "action": "resnapshot", "reason": why}
        case Parked(resumes=resumes):
            return _come_back(found, resumes, relay_log, sink, state, protect_log)
        case Reading() | Streaming() | CatchingUp():
            return {"ok": True, "action": "none"}
        case _:
            assert_never(found.phase)


def _come_back(
    table: TableState,
    resumes: CatchingUp | None,
    relay_log: RelayLog,
    sink: Sink | None,
    state: StateStore,
    protect_log: Callable[[Offset], None],
) -> dict[str, Any]:
    """Lets the table continue, or requests a resnapshot."""
    if resumes is None:
        loss: str | None = "its target cannot take the changes since it was parked without a new snapshot"
    else:
        loss = _lost(table, resumes.at, relay_log, sink, state, protect_log)
    if resumes is None or loss is not None:
        state.put_table(table.read_again(f"unparked; {loss}"))
        return {"ok": True, "action": "resnapshot", "reason": loss}
    with state.transaction():
        state.put_table(replace(table, phase=resumes))
        what = f"goes on from offset {resumes.at}"
        state.add_change(Change(table.table, table.schema.version, resumes.at, what, "unparked"))
    return {"ok": True, "action": "continue", "offset": int(resumes.at)}


def _lost(
    table: TableState,
    at: Offset,
    relay_log: RelayLog,
    sink: Sink | None,
    state: StateStore,
    protect_log: Callable[[Offset], None],
) -> str | None:
    """Why a parked table cannot continue from `at`; None: it can."""
    if table.schema.foreign_keys:
        return "what foreign keys changed while it was parked is not known"
    protect_log(at)
    relay_log.refresh()  # from here on, retention keeps the log's start
    if relay_log.start > at:
        return f"the relay log begins at offset {relay_log.start}, after {at}, where it was parked"
    if sink is None or table.last_epoch <= 0:
        return None  # its target does not exist yet, or never does
    target = sink.open(table.table)
    if isinstance(target, Missing):
        return "its target is gone"
    targets.check_not_rolled_back(table, target, state)
    return None
