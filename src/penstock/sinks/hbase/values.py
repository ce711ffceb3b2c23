"""Values of rows as bytes: cells and row keys. Pure.

A value is its text in UTF-8, and bytes are themselves. So `get 'shop:orders', '17'` in HBase's shell shows
what everybody can read, and a wider integer type changes no cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sinks.documents import is_binary
from penstock.sinks.sql.arrow_text import decimals

SEPARATOR = "|"
"""Between the columns of a key, as in Canal's adapter for HBase."""
_ESCAPED = (("%", "%25"), (SEPARATOR, "%7C"))
NULL_KEY = "%-"
"""A NULL in a row key: a zero date."""
EMPTY_KEY = "%."
"""A row key of no bytes, which HBase does not have."""


def cells(column: pa.Array) -> pa.Array:
    """The values of a column as bytes."""
    if is_binary(column.type):
        return column.cast(pa.binary())
    return _texts(column).cast(pa.binary())


def row_keys(columns: Sequence[pa.Array]) -> pa.Array:
    """The rows' keys: the texts of these columns, joined."""
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
        column = decimals(column)
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    return column.cast(pa.string())
