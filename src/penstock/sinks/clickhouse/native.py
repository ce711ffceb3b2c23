"""Rows in ClickHouse's format Native: columns, as the server has them in memory.

Texts would not do: old servers read some floating-point numbers with a wrong last digit.

A block is the numbers of its columns and rows, and then of each column its name, its type and its values. Of
a Nullable, one byte for each row says whether it is NULL. A String is its length (7 bits a byte, the lowest
first) and its bytes. Everything else is as in Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, DecimalType, StructType

from penstock.model.change import DELETED, SEQUENCE
from penstock.sinks.clickhouse.types import DATES, Types
from penstock.sinks.rows import converted

_LENGTH_BYTES_MAX = 5
"""Bytes that the length of a String may take. No value has 32 GiB."""


def block(batch: pa.RecordBatch, columns: StructType, key: Sequence[str], types: Types) -> bytes:
    """The rows as a block of ClickHouse's native format. `columns`: those of the table, which may have wider
    types than the rows."""
    parts = [_number(batch.num_columns), _number(batch.num_rows)]
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if name in (SEQUENCE, DELETED):
            shown, data = ("UInt64", "<u8") if name == SEQUENCE else ("UInt8", "u1")
            parts += [_text(name), _text(shown), _numbers(values, data)]
            continue
        kind = columns[name].dataType
        nullable = types.is_nullable(kind, key=name in key)
        parts += [_text(name), _text(types.nullable(kind) if nullable else types.of(kind))]
        if nullable:
            parts.append(_numbers(pc.is_null(values), "u1"))
        parts.append(_values(converted(values, to_arrow_type(kind)), kind, types))
    return b"".join(parts)


def _values(values: pa.Array, kind: DataType, types: Types) -> bytes:
    if types.of(kind) == "String":
        if isinstance(kind, DATES):
            values = _shown(values)
        return _strings(values)
    if isinstance(kind, DecimalType):
        return _decimals(values, kind)
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return _numbers(values, values.type.to_pandas_dtype())


def _shown(values: pa.Array) -> pa.Array:
    """Dates and times as texts."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp(values.type.unit))
    return values.cast(pa.large_string())


def _numbers(values: pa.Array, kind: Any) -> bytes:
    filled = values if values.null_count == 0 else pc.fill_null(values, pa.scalar(0, values.type))
    return bytes(filled.to_numpy(zero_copy_only=False).astype(kind, copy=False).tobytes())


def _decimals(values: pa.Array, kind: DecimalType) -> bytes:
    """The lowest 4, 8 or 16 bytes of the number without a point."""
    buffer = values.buffers()[1]
    words = np.frombuffer(buffer, "<u8").reshape(-1, 2)[values.offset : values.offset + len(values)]
    if kind.precision <= 9:
        return bytes(words[:, 0].astype("<u4").tobytes())
    return bytes((words[:, 0] if kind.precision <= 18 else words).tobytes())


def _strings(values: pa.Array) -> bytes:
    filled = pc.fill_null(values.cast(pa.large_binary()), pa.scalar(b"", pa.large_binary()))
    if not len(filled):
        return b""
    _, offsets_buffer, data_buffer = filled.buffers()
    offsets = np.frombuffer(offsets_buffer, "<i8")[filled.offset : filled.offset + len(filled) + 1]
    data = np.frombuffer(data_buffer or b"", "u1")[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    prefix = np.ones(len(lengths), "i8")  # bytes of each length
    for count in range(1, _LENGTH_BYTES_MAX):
        prefix += lengths >= 1 << (7 * count)
    ends = np.cumsum(lengths + prefix)
    starts = ends - lengths - prefix
    out = np.empty(int(ends[-1]), "u1")
    is_data = np.ones(len(out), bool)
    for place in range(int(prefix.max())):
        at = prefix > place
        more = np.where(prefix[at] > place + 1, 0x80, 0)
        out[starts[at] + place] = (lengths[at] >> (7 * place)) & 0x7F | more
        is_data[starts[at] + place] = False
    out[is_data] = data
    return bytes(out.tobytes())


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
