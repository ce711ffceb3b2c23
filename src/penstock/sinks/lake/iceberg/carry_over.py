"""Deletes rows in new files that were deleted in old ones, while the old files were being put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap64

from penstock.sinks.lake.iceberg.manifests import Content
from penstock.sinks.lake.lookup import Found


@dataclass(frozen=True)
class Move:
    """Data files whose rows were copied into new ones, in their order. `left_out`: for each old file, by
    location, the rows that were not copied."""

    before: Sequence[Content]
    after: Sequence[Content]
    left_out: Mapping[str, BitMap64]


def carried_over(move: Move, deleted: Callable[[str], BitMap64]) -> list[Found]:
    """The rows of new files to mark as deleted. `deleted`: the rows of an old file that are deleted now."""
    places = []
    start = 0
    for file in move.before:
        left_out = move.left_out.get(file.location, BitMap64())
        gone, since = _rows(left_out), _rows(deleted(file.location) - left_out)
        # A row moved up by one for each row before it that was left out.
        places.append(start + since - np.searchsorted(gone, since))
        start += file.rows - len(gone)
    moved = np.concatenate(places)
    found, first = [], 0
    for file in move.after:
        own = moved[(moved >= first) & (moved < first + file.rows)] - first
        if len(own):
            found.append((file.location, BitMap64(own.tolist()).serialize(), len(own)))
        first += file.rows
    return found


def _rows(bitmap: BitMap64) -> np.ndarray:
    return np.array(bitmap, np.int64)
