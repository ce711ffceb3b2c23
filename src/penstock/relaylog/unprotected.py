"""Statements of a part of the log that nobody keeps: retention may delete some of it meanwhile."""

from __future__ import annotations

from penstock.errors import LogPurged
from penstock.model.offset import LogRange
from penstock.relaylog.reader import RelayLog, Statement


def statements_left(relay_log: RelayLog, range_: LogRange) -> list[Statement]:
    """Those of the range, as far back as the log still reaches."""
    while True:
        start = max(range_.start, relay_log.start)
        try:
            return relay_log.statements(LogRange(start, max(start, range_.end)))
        except LogPurged:
            if not relay_log.forget_removed():
                raise
