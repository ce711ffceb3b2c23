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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock._core import XidSet
from penstock.model.chunk import Watermarks
from penstock.model.offset import Offset, SourcePosition
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.windows import LogPlaces, LogState


@dataclass(frozen=True)
class PostgreSqlWindow:
    """`sources.windows.Window`. `low`: a set of transactions as text. `high`: an LSN."""

    low: str
    high: int

    @property
    def watermarks(self) -> Watermarks:
        return Watermarks.of({"low": self.low, "high": self.high})

    @property
    def end(self) -> SourcePosition:
        return lsn_position(self.high)

    @property
    def holds_on_every_server(self) -> bool:
        return False

    def is_passed(self, at: LogState) -> bool:
        return at.position is not None and self.end.order <= at.position.order

    def shows(self, start: LogState) -> bool:
        return isinstance(start.executed, XidSet) and start.executed.issubset(XidSet(self.low))

    def visible_to(self, log: LogPlaces) -> Offset:
        return log.window_start(self.low)

    @property
    def seen(self) -> str:
        return self.low


class PostgreSqlWindows:
    """`sources.windows.Windows`."""

    def of(self, watermarks: Watermarks) -> PostgreSqlWindow:
        fields = watermarks.to_json()
        return PostgreSqlWindow(fields["low"], fields["high"])

    def common(self, seen: Sequence[str]) -> str:
        first, *others = sorted(set(seen))
        shared = XidSet(first)
        for one in others:
            shared = shared.intersection(XidSet(one))
        return str(shared)
