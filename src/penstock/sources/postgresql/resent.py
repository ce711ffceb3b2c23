"""What the server sends again after a lost connection, compared with the log.

A server may be put back to an older copy of its files, such as a snapshot of its disk. It goes on under its
name and on its timeline, and soon has other transactions at positions that the log has already. So a session
begins before the log's last transactions. The server sends those that its slot has not confirmed: none after
an ordinary pause, some after a crash or a restore. They must be the same ones, and none of them may be
missing.

Transactions without rows are not compared: which of them are sent depends on the server's version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock._core import transactions_of
from penstock.errors import START_OVER, LogDiverged
from penstock.model.offset import LogRange
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.postgresql.log_position import lsn_of
from penstock.sources.postgresql.replication import EPOCH_US

COMPARED_BYTES_MAX = 64 << 20
"""Bytes of log with the transactions that are compared. The server would send more of them for minutes."""
SPANS_MAX = 1000
"""Spans of the log that are looked at for a transaction with rows."""

_BEGIN = struct.Struct("!cQqI")  # `Begin` in the protocol's page: place of the commit, its time, the id
_ROWS = b"IUDT"
_DESCRIPTIONS = b"RYO"

Message = tuple[int, bytes]


@dataclass(frozen=True)
class Ended:
    """The last transactions with rows in a log. `before`: a position before all their commits."""

    before: int
    times_us: dict[int, int]
    """When each was committed, by the lower half of its id: the log of the server has only that."""
    last: int
    last_began: int
    """Position of the first change of the last one, which is before its commit."""


def ended(log: RelayLog) -> Ended | None:
    """None: the log has no such transaction near its end, or too large a one."""
    for range_ in _spans(log):
        if range_.end - range_.start > COMPARED_BYTES_MAX:
            return None
        _, ids, places, times_us = transactions_of(parts_of(log, range_), [], statements=True)
        found = [
            (int(id) & 0xFFFF_FFFF, lsn_of(place), time_us)
            for id, place, time_us in zip(ids, places, times_us, strict=True)
            if id is not None and id != "0"  # what the catalog said
        ]
        if found:
            last, began, _ = found[-1]
            (before,) = log.position_at(range_.start).order
            return Ended(before, {id: time_us for id, _, time_us in found}, last, began)
    return None


def _spans(log: RelayLog) -> Iterator[LogRange]:
    """Parts of the log between transactions, from its end back."""
    seen = 0
    for name in reversed(log.segments()):
        for entry in reversed(log.entries_of(name)):
            if (seen := seen + 1) > SPANS_MAX:
                return
            if entry.transactions and entry.committed <= log.end:
                yield LogRange(log.committed_before(entry.start), entry.committed)


class Resent:
    """Of one session. `end`: the server's position where the log ends. `confirmed`: what the slot has. Where
    nothing can be compared, `start` is `end`."""

    def __init__(self, log: RelayLog, end: int, confirmed: int) -> None:
        self._known, self._end = ended(log), end
        self.start = end if self._known is None else min(self._known.before, end)
        """Where the session begins."""
        self._expects = self._known is not None and confirmed <= self._known.last_began
        self._inside = False
        self._xid, self._time_us = 0, 0
        self.done = False
        """Whether everything from now on is new."""

    def new(self, messages: Sequence[Message], sent: int) -> list[int]:
        """The numbers of the messages that the log does not have, and of those that describe tables. `sent`:
        up to where the server says that it has sent everything. Raises `LogDiverged`."""
        left: list[int] = []
        for number, message in enumerate(messages):
            if not self.done:
                self._look(message[1])
            kind = message[1][:1]
            if self.done or not self._inside or kind in _DESCRIPTIONS:
                left.append(number)
            if kind == b"C":
                self._inside = False
        if not self._inside and sent > self._end:
            self._finish()
        return left

    def _look(self, message: bytes) -> None:
        kind = message[:1]
        if kind == b"B":
            _, commit, time_us, self._xid = _BEGIN.unpack_from(message)
            self._time_us, self._inside = time_us + EPOCH_US, commit < self._end
            if not self._inside:
                self._finish()
        elif self._inside and kind in _ROWS:
            known = self._known.times_us.get(self._xid) if self._known is not None else None
            if known != self._time_us:
                raise self._diverged(f"It has transaction {self._xid} there, which the log does not have")
            if self._known is not None and self._xid == self._known.last:
                self._expects = False

    def _finish(self) -> None:
        if self._expects and self._known is not None:
            raise self._diverged(f"It does not have transaction {self._known.last}, which the log has")
        self.done = True

    def _diverged(self, why: str) -> LogDiverged:
        return LogDiverged(
            f"The server has another log before {lsn_position(self._end)} than the one that was received. "
            f"{why}. It was put back to an older copy of its data.",
            hint=f"Targets have changes that the source has lost. To go on, {START_OVER}",
        )
