"""What the watermarks of a read say about the log.

**On a primary** the view is known exactly: `pg_current_snapshot()` in the transaction that reads. A snapshot
shows a transaction if its id is before the snapshot's end, it is not among the running ones, and it has
committed. The log names transactions by the same ids, and has only committed ones. So a transaction of the
log was seen if, and only if, its id is in the set (`low`). What was seen has written its commit record before
the snapshot was taken. So it is before `high`, the end of what was inserted into the log then. The LSN says
nothing of the other direction: a commit record may be long before its transaction becomes visible.

The record may not be durable yet. So a read counts only once the same session, on the same server, has seen
the log flushed up to `high`: else a crash could lose the commits that it saw, and their positions would be
used again.

**On a hot standby** the opposite holds. Its snapshots do not name the transactions that run, so
`pg_current_snapshot()` claims what it does not show. But it replays transactions one after the other, in the
order of the log. So what is visible is a prefix of the log, and a position says what it has: everything up to
where it had replayed before the view was opened was seen (`low_lsn`). What was seen, the primary had flushed
before the standby got it. So it is before `high`, up to where the primary's log was durable after the view
was opened.
Both servers must have the same log, on the same timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock._core import XidSet
from penstock.model.chunk import Watermarks
from penstock.model.offset import Offset, SourcePosition
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.windows import LogPlaces, LogState


@dataclass(frozen=True)
class PostgreSqlWindow:
    """`sources.windows.Window`. `low`: a set of transactions as text. `high`: an LSN. `low_lsn`: the chunk
    was read from a standby, which showed the log up to there; `low` is empty."""

    low: str
    high: int
    low_lsn: int | None = None

    @property
    def watermarks(self) -> Watermarks:
        fields: dict[str, Any] = {"low": self.low, "high": self.high}
        return Watermarks.of(fields if self.low_lsn is None else {**fields, "low_lsn": self.low_lsn})

    @property
    def end(self) -> SourcePosition:
        return lsn_position(self.high)

    @property
    def holds_on_every_server(self) -> bool:
        return False

    def is_passed(self, at: LogState) -> bool:
        return at.position is not None and self.end.order <= at.position.order

    def shows(self, start: LogState) -> bool:
        if self.low_lsn is not None:
            return start.position is not None and start.position.order <= (self.low_lsn,)
        return isinstance(start.executed, XidSet) and start.executed.issubset(XidSet(self.low))

    def visible_to(self, log: LogPlaces) -> Offset:
        if self.low_lsn is not None:
            return log.offset_within(lsn_position(self.low_lsn))
        return log.window_start(self.low)

    @property
    def seen(self) -> str | None:
        return self.low if self.low_lsn is None else None


class PostgreSqlWindows:
    """`sources.windows.Windows`."""

    def of(self, watermarks: Watermarks) -> PostgreSqlWindow:
        fields = watermarks.to_json()
        return PostgreSqlWindow(fields["low"], fields["high"], fields.get("low_lsn"))

    def common(self, seen: Sequence[str]) -> str:
        first, *others = sorted(set(seen))
        shared = XidSet(first)
        for one in others:
            shared = shared.intersection(XidSet(one))
        return str(shared)
