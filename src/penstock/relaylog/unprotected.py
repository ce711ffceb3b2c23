"""Reads statements from a part of the log that no consumer keeps, so that retention may delete it at any
time."""

from __future__ import annotations

from penstock.errors import LogPurged
from penstock.model.offset import LogRange
from penstock.relaylog.reader import RelayLog, Statement


def unprotected_statements(relay_log: RelayLog, range_: LogRange) -> list[Statement]:
    """The statements of the range that are still in the log."""
    while True:
        start = max(range_.start, relay_log.start)
        try:
            return relay_log.statements(LogRange(start, max(start, range_.end)))
        except LogPurged:
            if not relay_log.forget_removed():
                raise
