"""A range of a relay log as `_core.LogEncoder` reads it: a part for each segment, with the source's places in
it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.offset import LogRange, Offset
from penstock.relaylog.reader import RelayLog

if TYPE_CHECKING:
    from penstock._core import LogPart


def parts_of(log: RelayLog, range_: LogRange) -> list[LogPart]:
    """The parts of a range between two transactions, in order."""
    segments = log.segments()
    ends = [Offset(name.base) for name in segments[1:]] + [log.end]
    parts: list[LogPart] = []
    for name, end in zip(segments, ends, strict=True):
        start, end = max(range_.start, Offset(name.base)), min(range_.end, end)
        if start >= end:
            continue
        places = []
        file, position = "", 0
        for entry in log.entries_of(name):
            before = (file, position)
            file, _, place = entry.position.text.rpartition(":")
            position = int(place or 0)
            # All events of a span come from one file of the source.
            if entry.end > start and entry.start < end:
                places.append((int(entry.start), file, before[1] if before[0] == file else 0))
        bytes_of = log.place.files.file(name, start, end)
        parts.append((bytes_of, int(name.base), int(start - name.base), int(end - name.base), places))
    return parts
