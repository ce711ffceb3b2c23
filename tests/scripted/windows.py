"""What the watermarks of a script say (`penstock.sources.windows`); they have a stored form of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from penstock._core import SeriesSet
from penstock.model.chunk import Watermarks
from penstock.model.offset import Offset, SourcePosition
from penstock.sources.windows import LogPlaces, LogState


@dataclass(frozen=True)
class ScriptedWindow:
    """`before`: what the server had executed when the rows were looked at. `end`: of its log, after that."""

    before: str
    end: SourcePosition
    holds_on_every_server: bool = False

    @property
    def watermarks(self) -> Watermarks:
        return Watermarks.of({"executed": self.before, "end": self.end.to_json()})

    @property
    def seen(self) -> str | None:
        return self.before

    def is_passed(self, at: LogState) -> bool:
        return at.position is not None and self.end.order <= at.position.order

    def shows(self, start: LogState) -> bool:
        return start.executed is not None and start.executed.issubset(SeriesSet(self.before))

    def visible_to(self, log: LogPlaces) -> Offset:
        return log.window_start(self.before)


class ScriptedWindows:
    def of(self, watermarks: Watermarks) -> ScriptedWindow:
        fields = watermarks.to_json()
        return ScriptedWindow(fields["executed"], SourcePosition.from_json(fields["end"]))

    def common(self, seen: Sequence[str]) -> str:
        return str(reduce(SeriesSet.intersection, map(SeriesSet, seen)))
