"""Phases of tables, by the names that tests give them."""

from __future__ import annotations

from penstock.model.offset import Offset
from penstock.model.table import CatchingUp, Dropped, Parked, Reading, Removed, Streaming

SPLITTING = Reading(splitting=True)
READING = Reading(splitting=False)
READ = Streaming(snapshot_done=True)
LOG_ONLY = Streaming(snapshot_done=False)
PARKED = Parked(Offset(90), "No.")
DROPPED = Dropped(Offset(90))
REMOVED = Removed(Offset(90))


def behind(at: int) -> CatchingUp:
    return CatchingUp(Offset(at), LOG_ONLY)
