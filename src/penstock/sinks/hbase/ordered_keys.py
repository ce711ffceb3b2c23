"""Row keys that sort in HBase as their values do. Pure.

Numbers and times have 8 bytes, decimals 16. Texts and bytes end where the next column begins, so that shorter
ones come first. NULL, a zero date, comes before all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_END = b"\x00\x00"
_ZERO = b"\x00\xff"
"""How a byte 0 inside of a value is written, so that it is not taken for the value's end."""
_EMPTY = b"\x00"
"""A row key of no bytes, which HBase does not have."""
_SIGN = np.uint64(1 << 63)
_DECIMAL_BYTES = 16  # as many as 38 digits take


def ordered_keys(columns: Sequence[pa.Array]) -> pa.Array:
    last = len(columns) - 1
    parts = [_part(one, last=place == last) for place, one in enumerate(columns)]
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")
    empty = pc.equal(pc.binary_length(joined), 0)
    return pc.if_else(empty, pa.scalar(_EMPTY), joined)


def _part(column: pa.Array, *, last: bool) -> pa.Array:
    kind = column.type
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_floating(kind):
        return _fixed(_floats(column), column)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _fixed(_integers(column), column)
    if pa.types.is_date(kind):
        return _fixed(_integers(column.cast(pa.int32())), column)
    if pa.types.is_timestamp(kind):
        return _fixed(_integers(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())), column)
    end = b"" if last else _END
    values = column.cast(pa.binary()).to_pylist()
    return pa.array([(one or b"").replace(b"\x00", _ZERO) + end for one in values], pa.binary())


def _integers(column: pa.Array) -> np.ndarray[Any, Any]:
    filled = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    found: np.ndarray[Any, Any] = filled.view(np.uint64) ^ _SIGN
    return found


def _floats(column: pa.Array) -> np.ndarray[Any, Any]:
    filled = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0 is 0
    bits = filled.view(np.uint64)
    found: np.ndarray[Any, Any] = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return found


def _fixed(numbers: np.ndarray[Any, Any], column: pa.Array) -> pa.Array:
    numbers = np.where(np.asarray(column.is_null()), np.uint64(0), numbers)
    data = pa.py_buffer(numbers.astype(">u8").tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(column), [None, data]).cast(pa.binary())


def _decimals(column: pa.Array) -> pa.Array:
    scale, half = column.type.scale, 1 << (8 * _DECIMAL_BYTES - 1)
    found = [
        bytes(_DECIMAL_BYTES)
        if one is None
        else (int(one.scaleb(scale)) + half).to_bytes(_DECIMAL_BYTES, "big")
        for one in column.to_pylist()
    ]
    return pa.array(found, pa.binary())
