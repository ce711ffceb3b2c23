"""Converts the phases of tables to columns of the state's SQLite file, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import assert_never

from penstock.model.offset import Offset
from penstock.model.table import (
    CatchingUp,
    Dropped,
    Parked,
    Phase,
    Reading,
    Removed,
    ResnapshotPending,
    Streaming,
    snapshot_status,
)


@dataclass(frozen=True)
class PhaseColumns:
    """The columns of `tables` that store the phase, in their order.

    Earlier versions left values of earlier phases in columns that the present phase does not use. Such values
    are ignored: for example, `resnapshot_pending` of a dropped table.
    """

    status: str
    snapshot: str
    reason: str = ""
    hint: str = ""
    parked_at: int | None = None
    resnapshot_pending: str = ""
    resumes: int | None = None


def columns_of(phase: Phase) -> PhaseColumns:
    match phase:
        case Reading() | Streaming():
            return PhaseColumns("live", snapshot_status(phase))
        case CatchingUp(at=at):
            return PhaseColumns("live", snapshot_status(phase), resumes=at)
        case Parked(at=at, reason=reason, hint=hint, resumes=resumes):
            continued = resumes.at if resumes is not None else None
            return PhaseColumns("parked", snapshot_status(phase), reason, hint, at, resumes=continued)
        case ResnapshotPending(why=why, parked=parked):
            columns = PhaseColumns("live", "none") if parked is None else columns_of(parked)
            return replace(columns, resnapshot_pending=why)
        case Dropped(at=at, reason=reason):
            return PhaseColumns("dropped", "none", reason, parked_at=at)
        case Removed(at=at, reason=reason):
            return PhaseColumns("removed", "none", reason, parked_at=at)
        case _:
            assert_never(phase)


def phase_of(row: PhaseColumns) -> Phase:
    """Returns the phase that the columns store. Raises `ValueError` for unknown values."""
    at, why = Offset(row.parked_at or 0), row.resnapshot_pending
    then = _read_or_streamed(row.snapshot)
    catching_up = CatchingUp(Offset(row.resumes), then) if row.resumes is not None else None
    match row.status:
        case "live":
            return ResnapshotPending(why) if why else catching_up or then
        case "parked":
            parked = Parked(at, row.reason, row.hint, catching_up if isinstance(then, Streaming) else None)
            return ResnapshotPending(why, parked) if why else parked
        case "dropped":
            return Dropped(at, row.reason)
        case "removed":
            return Removed(at, row.reason)
        case unknown:
            raise ValueError(f"unknown status of a table: {unknown}")


def _read_or_streamed(snapshot: str) -> Reading | Streaming:
    match snapshot:
        case "splitting" | "reading":
            return Reading(splitting=snapshot == "splitting")
        case "none" | "done":
            return Streaming(snapshot_done=snapshot == "done")
        case unknown:
            raise ValueError(f"unknown snapshot of a table: {unknown}")
