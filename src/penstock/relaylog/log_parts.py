"""A range of a relay log as `_core.LogEncoder` reads it: a part for each segment, with the source's places in
it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.offset import LogRange, Offset
from penstock.relaylog.index import Entry
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import place_before

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
        places = _places(log.entries_of(name), start, end)
        bytes_of = log.place.files.file(name, start, end)
        parts.append((bytes_of, int(name.base), int(start - name.base), int(end - name.base), places))
    return parts


def _places(entries: Sequence[Entry], start: Offset, end: Offset) -> list[tuple[int, str, int]]:
    """Offset, file and position at the source where each span of a part begins. An open segment has an entry
    for each flush, so only those of the part are looked at."""
    first = bisect_right(entries, start, key=lambda entry: entry.end)
    before = entries[first - 1].fields if first else {}
    found = []
    for number in range(first, len(entries)):
        entry = entries[number]
        if entry.start >= end:
            break
        place = place_before(entry.fields, before)
        found.append((int(entry.start), str(place["file"]), int(place["position"])))
        before = entry.fields
    return found
