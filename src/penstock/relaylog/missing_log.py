"""What is said when a part of the relay log that someone asks for is not there."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import BEGIN_ANEW, LogPurged, RelayLogCorrupt, SourceError
from penstock.model.offset import Offset
from penstock.relaylog.segment import DAMAGED_HINT, SegmentName, list_segments

_PURGED_HINT = f"The pipeline that still needs this part of the log has to {BEGIN_ANEW}"


def purged(folder: Path, first: Offset, offset: Offset) -> LogPurged:
    """The log begins at `first`, behind `offset`."""
    return LogPurged(
        f"The relay log {folder} begins at offset {first}; what follows {offset} is gone.",
        hint=_PURGED_HINT,
        path=str(folder),
        offset=int(offset),
    )


def gone(folder: Path, name: SegmentName) -> SourceError:
    """A segment that was there at the last refresh: removed by retention, or lost."""
    try:
        names = list_segments(folder)
    except FileNotFoundError:
        names = []
    if names and name.base < names[0].base:
        return LogPurged(
            f"The segment {folder / name.binlog} was removed: the relay log now begins at offset "
            f"{names[0].base}.",
            hint=_PURGED_HINT,
            path=str(folder / name.binlog),
            offset=int(name.base),
        )
    return RelayLogCorrupt(
        f"The segment {folder / name.binlog} or its index is missing.",
        hint=DAMAGED_HINT,
        path=str(folder / name.binlog),
        offset=int(name.base),
    )
