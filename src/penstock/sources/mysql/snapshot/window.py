"""What watermarks of MySQL and MariaDB say about the log (`sources.windows.Window`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock._core import GtidSet
from penstock.model.chunk import Watermarks
from penstock.model.offset import Offset, SourcePosition
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.windows import LogPlaces, LogState


@dataclass(frozen=True)
class MySqlWindow:
    """The watermarks around a chunk's SELECT.

    - `low`, a GTID set as text: these transactions were visible.
    - `high`, the end of the binary log: everything that was visible is before it.
    - `low_position`, if given: all of the binary log up to this position was visible, too.
    - `high_gtids`, a GTID set as text: the chunk was read from a replica. The set has everything that was
      visible, and `high` has no meaning.
    """

    low: str
    high: BinlogPosition
    low_position: BinlogPosition | None = None
    high_gtids: str | None = None

    @property
    def watermarks(self) -> Watermarks:
        fields: dict[str, Any] = {
            "low": self.low,
            "high_file": self.high.file,
            "high_position": self.high.position,
        }
        if self.low_position is not None:
            fields |= {"low_file": self.low_position.file, "low_position": self.low_position.position}
        if self.high_gtids is not None:
            fields["high_gtids"] = self.high_gtids
        return Watermarks.of(fields)

    @property
    def end(self) -> SourcePosition:
        return self.high.opaque

    @property
    def holds_on_every_server(self) -> bool:
        return self.high_gtids is not None

    def is_passed(self, at: LogState) -> bool:
        if self.high_gtids is not None:
            return isinstance(at.executed, GtidSet) and GtidSet(self.high_gtids).issubset(at.executed)
        return at.position is not None and self.high.opaque.order <= at.position.order

    def shows(self, start: LogState) -> bool:
        if start.executed is not None and not start.executed.issubset(GtidSet(self.low)):
            return False
        if self.low or self.low_position is None or start.position is None:
            return True
        return start.position.order <= self.low_position.opaque.order  # an unknown one comes first

    def visible_to(self, log: LogPlaces) -> Offset:
        if self.low_position is None:
            return log.window_start(self.low)
        return log.offset_within(self.low_position.opaque)

    @property
    def seen(self) -> str | None:
        return self.low if self.low_position is None else None


class MySqlWindows:
    """`sources.windows.Windows`."""

    def of(self, watermarks: Watermarks) -> MySqlWindow:
        fields = watermarks.to_json()
        low = BinlogPosition(fields["low_file"], fields["low_position"]) if "low_file" in fields else None
        high = BinlogPosition(fields["high_file"], fields["high_position"])
        return MySqlWindow(fields["low"], high, low, fields.get("high_gtids"))

    def common(self, seen: Sequence[str]) -> str:
        first, *others = sorted(set(seen))
        shared = GtidSet(first)
        for one in others:
            shared = shared.intersection(GtidSet(one))
        return str(shared)
