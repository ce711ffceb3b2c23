"""Decides which tables should be equal to their source, and why the others are not compared. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import assert_never

from penstock.cascades.waiting import Operator, waits_for
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
    """Why a table is not compared, for programs."""

    GONE = "gone"
    """The table was dropped or renamed at the source."""
    REMOVED = "removed"
    """A signal removed it from the pipeline."""
    OTHER_COLUMNS = "other_columns"
    """The target has other columns than the source, as `schema.changes: ignore` asks for."""
    PARKED = "parked"
    READING = "reading"
    """The table's rows are being read, or a resnapshot is pending."""
    CATCHING_UP = "catching_up"
    UNWRITTEN = "unwritten"
    """The pipeline has not written it yet."""


TEMPORARY = frozenset({Why.READING, Why.CATCHING_UP, Why.UNWRITTEN})
"""Reasons that end by themselves while the pipeline runs."""


@dataclass(frozen=True)
class NotCompared:
    why: Why
    reason: str
    """One sentence or more for people, with what to do, if anything."""

    def to_json(self) -> dict[str, Any]:
        return {"why": self.why.value, "reason": self.reason}


@dataclass(frozen=True)
class ComparedVersion:
    """The version of a target to compare."""

    version: str | None
    """Argument of `Readable.read`; None: the current version."""
    schema_version: int
    """Version of the definition that its rows have."""

    def to_json(self) -> dict[str, Any]:
        return {"version": self.version, "schema": self.schema_version}


Subject = ComparedVersion | NotCompared


def not_compared(table: TableState, tables: Mapping[TableId, TableState]) -> NotCompared | None:
    """Returns why the table is not compared. None: the target should equal the source. `tables`: all tables
    of the pipeline."""
    match table.phase:
        case Dropped(reason=reason):
            return NotCompared(Why.GONE, reason or "The table was dropped at the source.")
        case Removed(reason=reason):
            return NotCompared(Why.REMOVED, reason or "The table was removed from the pipeline by a signal.")
        case Parked() as parked:
            return _parked(parked)
        case ResnapshotPending(why=why, parked=parked):
            if not isinstance(waits_for(tables).get(table.table), Operator):
                return NotCompared(Why.READING, f"A resnapshot is pending: {why}.")
            after = "Its resnapshot waits for a parent table, which is parked."
            return NotCompared(Why.PARKED, after) if parked is None else _parked(parked)
        case CatchingUp(at=at):
            reason = f"It is catching up and has reached offset {at}."
            return NotCompared(Why.CATCHING_UP, reason)
        case Reading() | Streaming():
            pass
        case _:
            assert_never(table.phase)
    if table.kept_columns is not None:
        reason = "Its target has other columns than the source (`schema.changes: ignore`)."
        return NotCompared(Why.OTHER_COLUMNS, reason)
    if table.reading:
        reason = "Its snapshot is not complete. `penstock status FILE` shows the progress."
        return NotCompared(Why.READING, reason)
    if table.last_epoch <= 0:
        return NotCompared(Why.UNWRITTEN, "The pipeline has not written it yet.")
    return None


def _parked(parked: Parked) -> NotCompared:
    return NotCompared(Why.PARKED, f"It is parked: {parked.reason} {parked.hint}".strip())
