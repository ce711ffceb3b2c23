"""Arrow lists from their elements."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import pyarrow as pa


def list_array(lengths: Iterable[int | None], elements: pa.Array) -> pa.ListArray:
    """Lists of so many of the elements, in their order. None: a list that is NULL."""
    known = list(lengths)
    starts = list(accumulate((length or 0 for length in known), initial=0))
    ends = [None if length is None else start for length, start in zip(known, starts, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*ends, starts[-1]], pa.int32()), elements)
