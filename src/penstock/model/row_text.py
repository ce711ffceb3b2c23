"""The canonical text of a row, by which rows at the source and at a target are compared.

The Rust core (`core/src/text.rs`) writes it from Arrow; its head lists the text of each column type. A source
writes the same bytes in its own way (MySQL by SQL: `sources/mysql/verify/sql.py`). Columns are joined by `|`,
and NULL is `~`. The hash of a row is the first 60 bits of the SHA-256 of its text, as an unsigned integer.
"""

from __future__ import annotations

import enum

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
    **dict.fromkeys(["tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"], Shape.NUMBER),
    "decimal": Shape.NUMBER,
    **dict.fromkeys(["float", "double"], Shape.FLOAT),
    **dict.fromkeys(["date", "datetime", "timestamp"], Shape.TEMPORAL),
    "time": Shape.TIME,
    **dict.fromkeys(["char", "varchar", "enum", "set", "inet4", "inet6", "uuid"], Shape.TEXT),
    **dict.fromkeys(["binary", "varbinary"], Shape.HEX),
    **dict.fromkeys(["tinytext", "text", "mediumtext", "longtext", "json"], Shape.TEXT_DIGEST),
    **dict.fromkeys(
        ["tinyblob", "blob", "mediumblob", "longblob", "geometry", "vector"], Shape.BINARY_DIGEST
    ),
}


def shape(column: Column) -> Shape:
    return _SHAPES[column.type]
