"""Finds the events of many tables in one pass over a part of the log, instead of one pass per table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock._core import DecodeError, Outline
from penstock.model.offset import Offset, Split
from penstock.model.schema import TableId
from penstock.relaylog.segment_bytes import opened

WALKS_MIN = 4
"""An outline is made if decoders would otherwise scan each byte more often than this. With fewer scans its
own pass is not worth it."""


class Outlines:
    """Outlines of the segments that the splits lie in. Without an outline (not worth its pass, or failed)
    each decoder finds its events itself."""

    def __init__(self, splits: Mapping[TableId, Iterable[Split]]) -> None:
        by_segment: defaultdict[str, list[tuple[TableId, Split]]] = defaultdict(list)
        for table, several in splits.items():
            for split in several:
                by_segment[split.path].append((table, split))
        self._outlines = {
            path: outline
            for path, found in by_segment.items()
            if (outline := _SegmentOutline.of(found)) is not None
        }

    def positions(self, table: TableId, split: Split) -> bytes | None:
        """The `positions` argument of `RangeDecoder`; None: it scans the split itself."""
        outline = self._outlines.get(split.path)
        return outline.positions(table, split) if outline is not None else None


class _SegmentOutline:
    def __init__(self, outline: Outline, tables: list[TableId], start: Offset, end: Offset) -> None:
        self._outline = outline
        self._places = {table: place for place, table in enumerate(tables)}
        self._start, self._end = start, end

    @classmethod
    def of(cls, found: list[tuple[TableId, Split]]) -> _SegmentOutline | None:
        first = min((split for _, split in found), key=lambda split: split.start)
        end = max(split.end for _, split in found)
        if sum(split.end - split.start for _, split in found) < WALKS_MIN * (end - first.start):
            return None
        tables = list(dict.fromkeys(table for table, _ in found))
        names = [(table.database, table.table) for table in tables]
        try:
            part = opened(replace(first, end=end))
            outline = Outline.of(names, *part.place, preamble=part.preamble)
        except DecodeError:
            return None  # the table's decoder reports it
        return cls(outline, tables, first.start, end) if outline is not None else None

    def positions(self, table: TableId, split: Split) -> bytes | None:
        place = self._places.get(table)
        if place is None or not self._start <= split.start <= split.end <= self._end:
            return None
        return self._outline.positions(place, split.start, split.end)
