"""Places in the relay log.

An `Offset` is one 64-bit integer with a total order over the whole relay log: the base offset in the name of
a segment plus the byte position inside that segment file. The base of a segment is the end of the one before
it, so offsets have no gaps and translate to a file and a position by one bisection. `Sequence` values in
targets are offsets too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NewType, Protocol

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


class SegmentSource(Protocol):
    """Where the bytes of a segment are (`relaylog/segment_bytes.py`)."""

    def open(self, part: Any) -> Any:
        """What the core reads from. `part`: the part of the file that will be read."""


@dataclass(frozen=True)
class Split:
    """A part of a `LogRange` that lies in one segment file and is decoded on its own.

    `start` and `end` are offsets at event boundaries. `preamble` are the offsets of events to read first
    because the split starts inside a transaction: what began the transaction, and what describes its rows.
    They may lie in an earlier segment, so each comes with the path and base offset of its own segment.

    `path` names the segment's file. `source` says where its bytes are; None: in that file. It is not stored
    in plans: the log may have moved when a plan is repeated.
    """

    path: str
    base: Offset
    start: Offset
    end: Offset
    preamble: tuple[tuple[str, Offset, Offset], ...] = ()
    source: SegmentSource | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class SourcePosition:
    """A place in the source's own log.

    Only the source that it comes from knows its parts. Everybody else compares, prints and stores it. Places
    in the log of one server are ordered by `order`. Places in the logs of different servers cannot be
    compared.
    """

    order: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        return {"order": list(self.order), "text": self.text}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SourcePosition:
        return cls(tuple(fields["order"]), fields["text"])


UNKNOWN_POSITION = SourcePosition((), "")
"""A position that is not known. It comes before all others."""
