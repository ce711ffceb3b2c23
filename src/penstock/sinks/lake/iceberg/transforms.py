"""Iceberg's partition transforms over Arrow columns. Pure.

Source: Iceberg's specification, "Partition Transforms" and Appendix B, "32-bit Hash Requirements". NULL stays
NULL. All columns have the types of `files.py`.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sinks.lake.terms import Term

_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_DIGITS_MAX = 38
"""Digits of the widest decimal."""
_EXACT_WIDTH_MAX = 2**30
"""Beyond this, Iceberg's own arithmetic for 32-bit integers overflows."""


def is_supported(term: Term, kind: pa.DataType) -> bool:
    """Whether `transformed` computes what Iceberg computes. NaN and -0 are values of their own there. A
    truncated decimal of 38 digits may need one digit more than Arrow has."""
    if pa.types.is_floating(kind):
        return False
    if term.transform == "truncate" and pa.types.is_decimal(kind) and kind.precision == _DIGITS_MAX:
        return False
    return term.transform != "truncate" or (term.width or 0) <= _EXACT_WIDTH_MAX


def transformed(term: Term, column: pa.Array) -> pa.Array:
    """The transform of each value."""
    match term.transform:
        case "identity":
            return column
        case "bucket":
            hashes = _with_nulls(_hashes(column), column)
            assert term.width is not None
            return pc.cast(_map(hashes, lambda found: (found & 0x7FFFFFFF) % term.width), pa.int32())
        case "truncate":
            assert term.width is not None
            return _truncated(column, term.width)
        case "hour":
            return pc.cast(_map(_integers(column), lambda us: us // _HOUR_US), pa.int32())
        case "day":
            return pc.cast(pc.cast(_map(_integers(column), _days(column.type)), pa.int32()), pa.date32())
        case "year" | "month":
            days = _map(_integers(column), _days(column.type))
            unit = "datetime64[Y]" if term.transform == "year" else "datetime64[M]"
            return pc.cast(
                _map(days, lambda found: found.astype("datetime64[D]").astype(unit).astype(np.int64)),
                pa.int32(),
            )


def _days(kind: pa.DataType) -> Any:
    return (lambda days: days) if pa.types.is_date(kind) else (lambda us: us // _DAY_US)


def _integers(column: pa.Array) -> pa.Array:
    """Numbers, dates (days since 1970) and timestamps (microseconds) as 64-bit integers."""
    kind = column.type
    if pa.types.is_date(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    return column.cast(pa.int64())


def _map(column: pa.Array, change: Any) -> pa.Array:
    """A function of NumPy over 64-bit integers. NULL stays NULL."""
    return _with_nulls(change(column.fill_null(0).to_numpy(zero_copy_only=False)), column)


def _with_nulls(values: Any, column: pa.Array) -> pa.Array:
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values.astype(np.int64), mask=mask)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    kind = column.type
    if kind == pa.string():
        return pc.utf8_slice_codeunits(column, 0, width)  # it counts characters, whatever its name says
    if kind == pa.binary():
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(kind):
        found = column.dictionary_encode()  # Python's numbers are slow, and repeated values are usual
        unscaled = [int.from_bytes(one, "little", signed=True) for one in _decimal_words(found.dictionary)]
        with localcontext(Context(prec=_DIGITS_MAX)):
            kept = [Decimal(one - one % width).scaleb(-kind.scale) for one in unscaled]
        return pa.array(kept, pa.decimal128(_DIGITS_MAX, kind.scale)).take(found.indices)
    integers = column.fill_null(0).to_numpy(zero_copy_only=False)
    kept = integers - integers % integers.dtype.type(width)  # wraps around at the ends, as Iceberg's does
    return _with_nulls(kept, column).cast(kind)


# 32-bit Murmur3, x86 variant, seed 0 ------------------------------------------------------------------------


def _hashes(column: pa.Array) -> Any:
    kind = column.type
    if pa.types.is_decimal(kind):
        return _hash_bytes(*_decimal_bytes(column))
    if kind in (pa.string(), pa.binary()):
        offsets = np.frombuffer(column.buffers()[1], np.int32)[
            column.offset : column.offset + len(column) + 1
        ]
        offsets = offsets.astype(np.int64)
        data = column.buffers()[2]
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return _hash_bytes(content, offsets[:-1], np.diff(offsets))
    values = _integers(column).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    found = np.zeros(len(values), np.uint32)
    for half in (values & np.uint64(0xFFFFFFFF), values >> np.uint64(32)):
        found = _mixed(found, half.astype(np.uint32))
    return _finished(found, np.uint32(8))


def _decimal_bytes(column: pa.Array) -> tuple[Any, Any, Any]:
    """The unscaled values, each as the fewest bytes in two's complement, big-endian: all bytes, where each
    value starts, and its number of bytes."""
    values = _decimal_words(column)[:, ::-1]
    sign = np.where(values[:, :1] & 0x80, 0xFF, 0)
    needless = (values[:, :-1] == sign) & ((values[:, 1:] & 0x80) == (sign & 0x80))
    skipped = np.cumprod(needless, axis=1, dtype=np.int64).sum(axis=1)
    return np.ascontiguousarray(values).ravel(), np.arange(len(column)) * 16 + skipped, 16 - skipped


def _decimal_words(column: pa.Array) -> Any:
    """The unscaled values, each as 16 bytes in two's complement, little-endian."""
    raw = np.frombuffer(column.buffers()[1], np.uint8)
    return raw[16 * column.offset : 16 * (column.offset + len(column))].reshape(-1, 16)


def _hash_bytes(content: Any, starts: Any, lengths: Any) -> Any:
    found = np.zeros(len(starts), np.uint32)
    longer = np.arange(len(starts))
    for block in range(int(lengths.max(initial=0)) // 4):
        longer = longer[lengths[longer] >= 4 * (block + 1)]
        at = starts[longer] + 4 * block
        found[longer] = _mixed(found[longer], _word(content, at, 4))
    for rest in (1, 2, 3):
        ending = np.flatnonzero(lengths % 4 == rest)
        at = starts[ending] + lengths[ending] - rest
        found[ending] ^= _scrambled(_word(content, at, rest))
    return _finished(found, lengths.astype(np.uint32))


def _word(content: Any, at: Any, size: int) -> Any:
    found = np.zeros(len(at), np.uint32)
    for place in range(size):
        found |= content[at + place].astype(np.uint32) << np.uint32(8 * place)
    return found


def _rotated(value: Any, bits: int) -> Any:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _scrambled(word: Any) -> Any:
    return _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _mixed(found: Any, word: Any) -> Any:
    return _rotated(found ^ _scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(found: Any, size: Any) -> Any:
    found = found ^ size
    found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return found ^ (found >> np.uint32(16))
