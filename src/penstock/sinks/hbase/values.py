"""Values of rows as bytes: cells and row keys. Pure.

By default, a value is its text in UTF-8, and bytes are themselves. So `get 'shop:orders', '17'` in HBase's
shell shows what everybody can read, and a wider integer type changes no cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TableError
from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.decimals import decimal_texts
from penstock.sinks.documents import float_texts, is_binary
from penstock.sinks.hbase.ordered_keys import ordered_keys

SEPARATOR = "|"
"""Separates the columns of a key, as in Canal's adapter for HBase."""
_ESCAPED = (("%", "%25"), (SEPARATOR, "%7C"))
NULL_KEY = "%-"
"""A NULL in a row key: a zero date."""
EMPTY_KEY = "%."
"""A row key of no bytes, which HBase does not have."""


@dataclass(frozen=True)
class Form:
    """How values are written. `native`: numbers and booleans as `Bytes.toBytes` of HBase's client does.
    `ordered`: row keys sort as their values do. `upper`: qualifiers are names of columns in capital
    letters."""

    native: bool = False
    ordered: bool = False
    upper: bool = False

    def qualifier(self, column: str) -> bytes:
        """The name that a column's cells have."""
        called = column.upper() if self.upper and column != SEQUENCE else column
        return called.encode("utf-8", "surrogatepass")

    def refuse_same(self, table: TableId, columns: Sequence[str]) -> None:
        """Raises `TableError` if cells of two columns would have the same qualifier."""
        known: dict[bytes, str] = {}
        for one in columns:
            if (other := known.setdefault(self.qualifier(one), one)) != one:
                raise TableError(
                    f"{table} has the columns `{other}` and `{one}`, which are the same in capital letters.",
                    hint="Leave out `sink.uppercase`, rename one of them, or leave out the table.",
                    table=str(table),
                )

    def cells(self, column: pa.Array) -> pa.Array:
        """The values of a column as bytes."""
        if is_binary(column.type):
            return column.cast(pa.binary())
        if self.native and is_native(column.type):
            return _native(column)
        return _texts(column).cast(pa.binary())

    def values(self, cells: pa.Array, kind: pa.DataType) -> pa.Array:
        """What is in the cells of a column of this type: numbers and booleans if they are native, else texts,
        or bytes. Raises `ArrowInvalid` or `ValueError` if they cannot be that."""
        if is_binary(kind):
            return cells
        if self.native and is_native(kind):
            return _of_native(cells, kind)
        return cells.cast(pa.string())

    def row_keys(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The rows' keys, of these columns."""
        return ordered_keys(columns) if self.ordered else row_keys(columns)


def row_keys(columns: Sequence[pa.Array]) -> pa.Array:
    """The texts of these columns, joined."""
    parts = [_key_part(one) for one in columns]
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, SEPARATOR)
    empty = pc.equal(pc.binary_length(joined), 0)
    return pc.if_else(empty, pa.scalar(EMPTY_KEY), joined).cast(pa.binary())


def _key_part(column: pa.Array) -> pa.Array:
    if is_binary(column.type):
        found = pa.array([None if one is None else one.hex() for one in column.to_pylist()], pa.string())
    else:
        found = _texts(column)
    for plain, escaped in _ESCAPED:
        found = pc.replace_substring(found, plain, escaped)
    return pc.fill_null(found, NULL_KEY)


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_decimal(kind):
        column = decimal_texts(column)
    elif pa.types.is_floating(kind):
        column = float_texts(column)
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    return column.cast(pa.string())


def is_native(kind: pa.DataType) -> bool:
    """Whether values of this type have a form of their own."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _width(kind: pa.DataType) -> tuple[int, str]:
    """Bytes of a value, and how numpy calls it."""
    if pa.types.is_boolean(kind):
        return 1, "i1"
    return kind.bit_width // 8, f">{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}"


def _native(column: pa.Array) -> pa.Array:
    width, name = _width(column.type)
    if pa.types.is_boolean(column.type):
        column = pc.negate(column.cast(pa.int8()))  # true is -1
    filled = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    data = pa.py_buffer(filled.astype(name).tobytes())
    found = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(column), [None, data])
    return pc.if_else(column.is_valid(), found.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _of_native(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    width, name = _width(kind)
    lengths = pc.fill_null(pc.binary_length(cells), width)
    if pc.any(pc.not_equal(lengths, width)).as_py():
        raise ValueError("another number of bytes")
    whole = pc.fill_null(cells, bytes(width)).to_pylist()
    numbers: np.ndarray[Any, Any] = np.frombuffer(b"".join(whole), name).astype(name.replace(">", "="))
    known = np.asarray(cells.is_null())
    if pa.types.is_boolean(kind):
        numbers = numbers != 0
    return pa.array(numbers, kind, mask=known)
