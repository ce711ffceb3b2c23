"""Which tables should be equal to their source, and why the others need not be. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import assert_never

from penstock.cascades.keys import is_held_back
from penstock.model.schema import TableId
from penstock.model.table import (
    CatchingUp,
    Dropped,
    Parked,
    Reading,
    Removed,
    ResnapshotPending,
    Streaming,
    TableState,
)


class Why(str, enum.Enum):
    """Why a table is not compared; what programs read."""

    GONE = "gone"
    """It was dropped at the source, or renamed there."""
    REMOVED = "removed"
    """A signal took it out of the pipeline."""
    OTHER_COLUMNS = "other_columns"
    """Its target keeps other columns than the source has, as the pipeline file asks for."""
    PARKED = "parked"
    READING = "reading"
    """Its rows are being read, or a resnapshot is pending."""
    CATCHING_UP = "catching_up"
    UNWRITTEN = "unwritten"
    """The pipeline has not written it yet."""


FOR_NOW = frozenset({Why.READING, Why.CATCHING_UP, Why.UNWRITTEN})
"""The pipeline ends these by itself."""


@dataclass(frozen=True)
class NotCompared:
    why: Why
    reason: str
    """One sentence or more, for people; ends with what to do, if there is something."""

    def to_json(self) -> dict[str, Any]:
        return {"why": self.why.value, "reason": self.reason}


@dataclass(frozen=True)
class Held:
    """A target at the place where it is compared."""

    version: str | None
    """For `Readable.read`; None: the present one."""
    schema_version: int
    """Of the definition that its rows have."""

    def to_json(self) -> dict[str, Any]:
        return {"version": self.version, "schema": self.schema_version}


Subject = Held | NotCompared


def not_compared(table: TableState, tables: Mapping[TableId, TableState]) -> NotCompared | None:
    """None: the target should hold what the source holds. `tables`: all of the pipeline."""
    match table.phase:
        case Dropped(reason=reason):
            return NotCompared(Why.GONE, reason or "It was dropped at the source.")
        case Removed():
            return NotCompared(Why.REMOVED, "It was removed from this pipeline.")
        case Parked() as parked:
            return _parked(parked)
        case ResnapshotPending(why=why, parked=parked):
            if not is_held_back(table, tables):
                return NotCompared(Why.READING, f"A resnapshot of it is pending: {why}.")
            after = "It is read again after a table to which it refers, which is parked."
            return NotCompared(Why.PARKED, after) if parked is None else _parked(parked)
        case CatchingUp(at=at):
            reason = f"It catches up since it was unparked, and stands at offset {at}."
            return NotCompared(Why.CATCHING_UP, reason)
        case Reading() | Streaming():
            pass
        case _:
            assert_never(table.phase)
    if table.kept is not None:
        reason = "Its target keeps other columns than the source has (`schema.changes: ignore`)."
        return NotCompared(Why.OTHER_COLUMNS, reason)
    if table.reading:
        reason = "Its snapshot is not complete yet: `penstock status FILE` shows how far it is."
        return NotCompared(Why.READING, reason)
    if table.last_epoch <= 0:
        return NotCompared(Why.UNWRITTEN, "The pipeline has not written it yet.")
    return None


def _parked(parked: Parked) -> NotCompared:
    return NotCompared(Why.PARKED, f"It is parked: {parked.reason} {parked.hint}".strip())
