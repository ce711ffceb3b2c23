"""What the watermarks of a read say about the log.

A read saw a view V: the transactions whose effects it showed. Its watermarks promise
`low ⊆ V ⊆ prefix(high)`. Neither V nor `low` need be a prefix of the log. Each source takes watermarks in its
own way, and argues in its own folder why the promise is true. Everybody else stores them
(`model.chunk.Watermarks`) and asks a `Window`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.chunk import Watermarks
from penstock.model.offset import Offset, SourcePosition
from penstock.relaylog.segment_format import TransactionSet


@dataclass(frozen=True)
class LogState:
    """What the index of the relay log says about one offset: the source's position, and the transactions that
    the source had executed.

    position: None if it is not known. executed: None if nobody needs it.
    """

    position: SourcePosition | None
    executed: TransactionSet | None = None


class LogPlaces(Protocol):
    """Finds offsets of the relay log by the source's own terms. Answers come from the index alone."""

    def window_start(self, executed: str) -> Offset:
        """The greatest known offset O with every transaction of `prefix(O)` in `executed`, a set of
        transactions as text."""

    def offset_within(self, position: SourcePosition) -> Offset:
        """An offset O such that every transaction of `prefix(O)` is at or before `position` in the log of the
        server followed now; the greatest that is known, or 0."""


class Window(Protocol):
    """What the watermarks of one read say about the log. A value."""

    @property
    def watermarks(self) -> Watermarks:
        """The form that is stored. `Windows.of` turns it into a window again."""

    @property
    def end(self) -> SourcePosition:
        """The high watermark as a position in the log of the server followed. Only the window of a read view
        has it."""

    @property
    def holds_on_every_server(self) -> bool:
        """Whether `is_passed` also answers for the log of a server other than the one that the watermarks
        were taken for. It then needs `LogState.executed`."""

    def is_passed(self, at: LogState) -> bool:
        """Whether the log has reached the high watermark, and so contains everything that was seen."""

    def shows(self, start: LogState) -> bool:
        """Whether the read certainly saw everything that was in the log at `start`."""

    def visible_to(self, log: LogPlaces) -> Offset:
        """An offset up to which the read saw all of the log; 0 if none is known."""

    @property
    def seen(self) -> str | None:
        """The transactions that were seen, wherever they are in the log. Decoders can skip them
        (`relaylog.segment_format.without`). None: `visible_to` says all that is known."""


class Windows(Protocol):
    """Interprets the watermarks of one source. Does not connect."""

    def of(self, watermarks: Watermarks) -> Window:
        """The window of stored watermarks, also of those that an earlier version took."""

    def common(self, seen: Sequence[str]) -> str:
        """The transactions that are in every one of these sets (`Window.seen`). There is at least one set."""
