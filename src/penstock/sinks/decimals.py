"""Decimals as texts, for targets that read numbers from text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def decimal_texts(column: pa.Array) -> pa.Array:
    """The values as texts without exponents: a database may take `1E-10` for a binary number."""
    texts = column.cast(pa.large_string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    plain = [None if value is None else format(value, "f") for value in column.to_pylist()]
    return pa.array(plain, pa.large_string())
