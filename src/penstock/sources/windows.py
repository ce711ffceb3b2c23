"""What the watermarks of a read say about the log.

A read saw a view V: the transactions whose effects it showed. Its watermarks promise
`low ⊆ V ⊆ prefix(high)`. Neither V nor `low` need be a prefix of the log. How a source takes watermarks, and
why the promise holds, is its own; everybody else keeps them (`model.chunk.Watermarks`) and asks a `Window`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock._core import GtidSet
from penstock.model.chunk import Watermarks
from penstock.model.offset import Offset, SourcePosition


@dataclass(frozen=True)
class LogState:
    """What the index of the relay log knows of one offset: where the source stood, and what it had executed.

    position: None: not known. executed: None: nobody needs it.
    """

    position: SourcePosition | None
    executed: GtidSet | None = None


class LogPlaces(Protocol):
    """Offsets of the relay log, by the source's own terms. Answers come from the index alone."""

    def window_start(self, gtids: str) -> Offset:
        """The greatest known offset O with every transaction of `prefix(O)` in `gtids`."""

    def offset_within(self, position: SourcePosition) -> Offset:
        """A known offset O, the greater the better, with every transaction of `prefix(O)` at or before
        `position` in the log of the server followed now; 0 if none is known."""


class Window(Protocol):
    """What one read's watermarks say. A value."""

    @property
    def watermarks(self) -> Watermarks:
        """The form that is stored; `Windows.of` takes it."""

    @property
    def end(self) -> SourcePosition:
        """The high watermark as a place of the log of the server followed; only of a view."""

    @property
    def holds_on_every_server(self) -> bool:
        """`is_passed` is right also in the log of another server than the one that the watermarks speak of.
        It needs `LogState.executed` then."""

    def is_passed(self, at: LogState) -> bool:
        """The log has reached the high watermark: it holds all that was seen."""

    def shows(self, start: LogState) -> bool:
        """All that the log held at `start` was seen for certain."""

    def visible_to(self, log: LogPlaces) -> Offset:
        """An offset up to which all of the log was seen; 0 if none is known."""

    @property
    def seen(self) -> str | None:
        """Transactions that were seen wherever they are in the log, as decoders take them
        (`_core.KeySet.add_split(exclude_gtids=)`). None: `visible_to` says all that is known."""


class Windows(Protocol):
    """Reads the watermarks of one source. Asks nothing."""

    def of(self, watermarks: Watermarks) -> Window:
        """The window of watermarks that this source took, whenever that was."""

    def common(self, seen: Sequence[str]) -> str:
        """The transactions that are in each of these (`Window.seen`); there is at least one."""
