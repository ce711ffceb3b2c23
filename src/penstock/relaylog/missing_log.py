"""Errors for a part of the relay log that does not exist."""

from __future__ import annotations

from penstock.errors import START_OVER, LogPurged, RelayLogCorrupt, SourceError
from penstock.model.offset import Offset
from penstock.relaylog.files import LogFiles, LogPlace
from penstock.relaylog.segment import DAMAGED_HINT, SegmentName

_PURGED_HINT = f"A pipeline that still needs this part of the log has to {START_OVER}"


def purged(place: LogPlace, first: Offset, offset: Offset) -> LogPurged:
    """The error when the log begins at `first`, which is after the requested `offset`."""
    return LogPurged(
        f"The relay log {place} begins at offset {first}; log after offset {offset} was deleted.",
        hint=_PURGED_HINT,
        path=str(place),
        offset=int(offset),
    )


def gone(files: LogFiles, name: SegmentName) -> SourceError:
    """The error for a segment that existed at the last refresh: retention removed it, or it was lost."""
    files.look_again()
    names = files.names()
    if names and name.base < names[0].base:
        return LogPurged(
            f"The segment {files.path(name)} was deleted: the relay log now begins at offset "
            f"{names[0].base}.",
            hint=_PURGED_HINT,
            path=files.path(name),
            offset=int(name.base),
        )
    return RelayLogCorrupt(
        f"The segment {files.path(name)} or its index is missing.",
        hint=DAMAGED_HINT,
        path=files.path(name),
        offset=int(name.base),
    )
