"""Ranges of an object that are read together. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

Span = tuple[int, int]
"""Start, and end without it, in bytes."""


def spans(ranges: Sequence[Span], gap: int) -> list[Span]:
    """The fewest spans that cover all ranges, in order, if ranges at most `gap` bytes apart are read
    together. Empty ranges need nothing."""
    merged: list[Span] = []
    for start, end in sorted(span for span in ranges if span[0] < span[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def within(ranges: Sequence[Span], wanted: Sequence[Span], found: Sequence[memoryview]) -> list[memoryview]:
    """The bytes of each range, from the bytes `found` of the spans `wanted`."""
    starts = [start for start, _ in wanted]
    pieces = []
    for start, end in ranges:
        if start >= end:
            pieces.append(memoryview(b""))
            continue
        place = bisect_right(starts, start) - 1
        pieces.append(found[place][start - starts[place] : end - starts[place]])
    return pieces
