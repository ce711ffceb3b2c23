"""The canonical text of a row as SQL: the server's half of a comparison.

The Rust core (`core/src/text.rs`) writes the same bytes from Arrow; its head lists the text of each column
type. The statements expect the session that `penstock.verify.source` sets up: `utf8mb4` connection, UTC,
empty sql_mode.

No expression is ever NULL, and none grows beyond `max_allowed_packet` by what is added here: large objects
enter as their SHA-256. (Past that limit the server would answer NULL with only a warning; the reader checks
for it.)

SHA2() is built into every server. MD5() and SHA1() are not: since MySQL 9.6 they are a component that is not
installed by default. Two CRC32 of one text would not do instead of a digest: CRC32 is linear, so the CRC32 of
`a` + text and of `b` + text differ by a number that depends only on the text's length.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from penstock.model.schema import DEFAULT_TYPES, Column, TypeOptions, quote


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


def cell(column: Column, types: TypeOptions = DEFAULT_TYPES, *, in_key: bool = False) -> str:
    """The canonical text of one column, `~` for NULL."""
    name = quote(column.name)
    match shape(column):
        case Shape.NUMBER:
            text = _number(column, types, in_key)
        case Shape.FLOAT:
            text = f"{name} + 0e0"
        case Shape.TEMPORAL:
            text = name if in_key else _date(name, types)
        case Shape.TIME:
            text = name
        case Shape.TEXT:
            converted = f"CONVERT({name} USING utf8mb4)"
            text = f"CONCAT(LENGTH({converted}), ':', {converted})"
        case Shape.HEX:
            text = f"HEX({name})"
        case Shape.TEXT_DIGEST:
            text = f"SHA2(CONVERT({name} USING utf8mb4), 256)"
        case Shape.BINARY_DIGEST:
            text = f"SHA2({name}, 256)"
    return f"IFNULL({text}, '~')"


def _number(column: Column, types: TypeOptions, in_key: bool) -> str:
    """`+ 0` drops the padding of ZEROFILL and makes a number of BIT and YEAR."""
    name = quote(column.name)
    if column.type == "decimal":
        if types.decimal == "double" and not in_key:
            return f"{name} + 0e0"
        return name if "zerofill" not in column.column_type else f"{name} + 0"
    is_boolean = column.column_type.startswith("tinyint(1)") and not column.unsigned and not in_key
    if types.tinyint1 == "boolean" and is_boolean:
        return f"({name} <> 0)"
    return f"{name} + 0"


def _date(name: str, types: TypeOptions) -> str:
    """Dates that are no day of the years 1 to 9999 are NULL under policy `null`, as in the target.

    TO_DAYS is NULL for zero and partial dates and counts on past the end of a month (2024-02-31). Some
    servers count days of the year 0, and some do not.
    """
    if types.zero_dates == "text":
        return name
    return f"IF(YEAR({name}) > 0 AND FROM_DAYS(TO_DAYS({name})) = DATE({name}), {name}, NULL)"


def text(columns: Sequence[Column], types: TypeOptions = DEFAULT_TYPES, *, key: Sequence[str] = ()) -> str:
    """The canonical text of these columns of a row. `key` names those that are in the key: there is no choice
    about them."""
    cells = [cell(column, types, in_key=column.name in key) for column in columns]
    return cells[0] if len(cells) == 1 else "CONCAT(" + ", '|', ".join(cells) + ")"


def key_text(columns: Sequence[Column]) -> str:
    """The same of the key's columns."""
    return text(columns, key=[column.name for column in columns])


def row_hash(
    columns: Sequence[Column], types: TypeOptions = DEFAULT_TYPES, *, key: Sequence[str] = ()
) -> str:
    """The first 60 bits of the SHA-256 of the row's text, as an unsigned integer."""
    return f"CAST(CONV(LEFT(SHA2({text(columns, types, key=key)}, 256), 15), 16, 10) AS UNSIGNED)"
