"""The canonical text of a row, by which rows at the source and at a target are compared.

The Rust core (`core/src/text.rs`) writes it from Arrow; its head lists the text of each column type. A source
writes the same bytes in its own way (MySQL by SQL: `sources/mysql/verify/sql.py`). Columns are joined by `|`,
and NULL is `~`. The hash of a row is the first 60 bits of the SHA-256 of its text, as an unsigned integer.
"""

from __future__ import annotations

import enum

from penstock.model.column_type import (
    ADDRESSES,
    BIT,
    BOOLEAN,
    DATES,
    DECIMAL,
    ENUM,
    FLOATS,
    GEOMETRY,
    INTEGERS,
    INTERVAL,
    JSON,
    LIST,
    LONG_BINARY,
    LONG_TEXTS,
    NUMERIC,
    SET,
    SHORT_BINARY,
    SHORT_TEXTS,
    TIME,
    VECTOR,
    YEAR,
)  # fmt: skip
from penstock.model.schema import Column


class Shape(enum.Enum):
    """How the values of a column type are written; the same split as `Shape` in `text.rs`."""

    NUMBER = "number"
    FLOAT = "float"
    TEMPORAL = "temporal"
    TIME = "time"
    TEXT = "text"
    HEX = "hex"
    TEXT_DIGEST = "text digest"
    BINARY_DIGEST = "binary digest"


_SHAPES = {
    **dict.fromkeys([*INTEGERS, BOOLEAN, DECIMAL, NUMERIC, BIT, YEAR], Shape.NUMBER),
    **dict.fromkeys(FLOATS, Shape.FLOAT),
    **dict.fromkeys(DATES, Shape.TEMPORAL),
    TIME: Shape.TIME,
    **dict.fromkeys([*SHORT_TEXTS, ENUM, SET, *ADDRESSES, INTERVAL], Shape.TEXT),
    **dict.fromkeys(SHORT_BINARY, Shape.HEX),
    **dict.fromkeys([*LONG_TEXTS, JSON, LIST], Shape.TEXT_DIGEST),
    **dict.fromkeys([*LONG_BINARY, GEOMETRY, VECTOR], Shape.BINARY_DIGEST),
}


def shape(column: Column) -> Shape:
    return _SHAPES[column.type]
