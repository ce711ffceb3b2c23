"""Positions in the binary log, and the last transaction in the relay log. Other parts of Penstock see them
only as a `SourcePosition` and as the field `last` of an index entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model.offset import Offset, SourcePosition
from penstock.relaylog import segment_format
from penstock.relaylog.reader import RelayLog


@dataclass(frozen=True)
class BinlogPosition:
    """A position in a file of the binary log. Without a file's name, the position is unknown."""

    file: str
    position: int

    @classmethod
    def of(cls, place: SourcePosition) -> BinlogPosition:
        file, _, position = place.text.rpartition(":")
        return cls(file, int(position or 0))

    @property
    def opaque(self) -> SourcePosition:
        """The position in the form in which other parts of Penstock see it."""
        return segment_format.position(self.file, self.position)

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


UNKNOWN = BinlogPosition("", 0)


@dataclass(frozen=True)
class LastTransaction:
    """The last transaction in a relay log: its range there, and where it begins in the binary log."""

    start: Offset
    end: Offset
    id: str | None
    file: str
    position: int
    sent: Sequence[int] | None = None
    """Length and digest of what the source sent, if the relay log stores other bytes; empty: unknown."""

    @classmethod
    def of(cls, log: RelayLog) -> LastTransaction | None:
        known = log.last_transaction()
        return None if known is None else cls(**known)
