"""Places in the relay log.

An `Offset` is one 64-bit integer with a total order over the whole relay log: the base offset in the name of
a segment plus the byte position inside that segment file. The base of a segment is the end of the one before
it, so offsets have no gaps and translate to a file and a position by one bisection. `Sequence` values in
targets are offsets too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Offset = NewType("Offset", int)


@dataclass(frozen=True, order=True)
class LogRange:
    """`(start, end]`: every event that ends after `start` and at or before `end`."""

    start: Offset
    end: Offset

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"a log range cannot end ({self.end}) before it starts ({self.start})")

    @property
    def bytes(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        return self.end > self.start


@dataclass(frozen=True)
class Split:
    """A part of a `LogRange` that lies in one segment file and is decoded on its own.

    `start` and `end` are offsets at event boundaries. `preamble` are the offsets of events to read first
    because the split starts inside a transaction: its GTID event, then the table maps in force, in log order.
    They may lie in an earlier segment, so each comes with the path and base offset of its own segment.
    """

    path: str
    base: Offset
    start: Offset
    end: Offset
    preamble: tuple[tuple[str, Offset, Offset], ...] = ()


@dataclass(frozen=True)
class SourcePosition:
    """A place in the source's own binary log. Ordered by the number in the file name, then position."""

    file: str
    position: int

    @property
    def order(self) -> tuple[int, int]:
        """Sort key. Base names of one server's log never change, so the number decides."""
        return (int(self.file.rsplit(".", 1)[1]), self.position)

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"
