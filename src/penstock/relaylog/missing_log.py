"""Errors for a part of the relay log that does not exist."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import START_OVER, LogPurged, RelayLogCorrupt, SourceError
from penstock.model.offset import Offset
from penstock.relaylog.segment import DAMAGED_HINT, SegmentName, list_segments

_PURGED_HINT = f"A pipeline that still needs this part of the log has to {START_OVER}"


def purged(folder: Path, first: Offset, offset: Offset) -> LogPurged:
    """The error when the log begins at `first`, which is after the requested `offset`."""
    return LogPurged(
        f"The relay log {folder} begins at offset {first}; log after offset {offset} was deleted.",
        hint=_PURGED_HINT,
        path=str(folder),
        offset=int(offset),
    )


def gone(folder: Path, name: SegmentName) -> SourceError:
    """The error for a segment that existed at the last refresh: retention removed it, or it was lost."""
    try:
        names = list_segments(folder)
    except FileNotFoundError:
        names = []
    if names and name.base < names[0].base:
        return LogPurged(
            f"The segment {folder / name.file} was deleted: the relay log now begins at offset "
            f"{names[0].base}.",
            hint=_PURGED_HINT,
            path=str(folder / name.file),
            offset=int(name.base),
        )
    return RelayLogCorrupt(
        f"The segment {folder / name.file} or its index is missing.",
        hint=DAMAGED_HINT,
        path=str(folder / name.file),
        offset=int(name.base),
    )
