"""Watches how much of its log the server keeps for a slot, and how long until the slot is lost."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.sources.postgresql.slot_state import kept_text, slot_state

log = logging.getLogger(__name__)

_IN_DANGER = ("unreserved", "lost")
"""`wal_status` of a slot for which the server keeps its log until the next checkpoint, or not any more."""


@dataclass
class SlotWatch:
    """`look` is called from time to time."""

    slot: str
    _at: float = 0.0
    _written: int | None = None
    """The end of the server's log at the last look."""
    _is_warned: bool = False

    def look(self, database: psycopg.Connection[Any]) -> dict[str, Any] | None:
        """For the receiver's status. `source_log_seconds_left`: until the slot may be lost if the receiver
        confirmed nothing more and the server went on as since the last look; None: never, or not known."""
        state = slot_state(database, self.slot)
        if state is None:
            return None
        now, before = time.monotonic(), self._written
        took, self._at, self._written = now - self._at, now, state.written
        rate = None if before is None or self._written is None else (self._written - before) / took
        left = state.safe_bytes / rate if rate and state.safe_bytes is not None else None
        in_danger = state.fields["wal_status"] in _IN_DANGER
        if in_danger and not self._is_warned:
            log.warning(
                "the replication slot %s is %s: %s",
                self.slot, state.fields["wal_status"], kept_text(state.kept_bytes, state.safe_bytes),
            )  # fmt: skip
        self._is_warned = in_danger
        return state.report() | {"source_log_seconds_left": None if left is None else max(0, round(left))}
