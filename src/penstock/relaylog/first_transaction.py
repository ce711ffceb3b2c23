"""Finds transactions in a relay log that its index does not lead to."""

from __future__ import annotations

from collections.abc import Callable

from penstock._core import transactions_of
from penstock.model.offset import LogRange, Offset
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog

_STEP_BYTES = 64 * 1024**2
"""Bytes of log that are searched at once: a search ends soon after the place that the index gives."""

Finds = Callable[[str | None, str, int], bool]
"""Whether a transaction is the first one: its id, its place, and its commit time in microseconds."""


def first_transaction(log: RelayLog, near: Offset, finds: Finds, *, statements: bool = True) -> Offset:
    """Where the first such transaction begins, from `near` on; the log's end if there is none. `statements`:
    also of those that only have statements."""
    start = near
    while start < log.end:
        end = log.cut(start, _STEP_BYTES)
        columns = transactions_of(parts_of(log, LogRange(start, end)), [], statements=statements)
        for begin, id, place, commit_us in zip(*columns, strict=True):
            if finds(id, place, commit_us):
                return Offset(max(near, begin))
        start = end
    return log.end


def first_committed_since(log: RelayLog, at_us: int, *, statements: bool = True) -> Offset:
    """Where the first transaction begins that was committed at `at_us` or later, as far as commit times
    increase. See `first_transaction`."""
    near = _before(log, at_us)
    return first_transaction(log, near, lambda *fields: fields[2] >= at_us, statements=statements)


def _before(log: RelayLog, at_us: int) -> Offset:
    """A committed offset behind which all these transactions are."""
    found = log.start
    for name in log.segments():
        for entry in log.entries_of(name):
            if entry.last_commit_us is not None and entry.last_commit_us >= at_us:
                return found
            found = Offset(max(found, entry.committed))
    return found
