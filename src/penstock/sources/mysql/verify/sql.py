"""The canonical text of a row as SQL: the server's half of a comparison.

The Rust core (`core/src/text.rs`) writes the same bytes from Arrow; its head lists the text of each column
type. The statements expect the session that `read_view.py` sets up: `utf8mb4` connection, UTC,
empty sql_mode.

No expression is ever NULL. None exceeds `max_allowed_packet` because of the text built here: large objects
enter as their SHA-256. (Beyond that limit the server would return NULL with only a warning, for which the
reader checks.)

SHA2() is built into every server. MD5() and SHA1() are not: since MySQL 9.6 they are in a component that is
not installed by default. Two CRC32 of one text cannot replace a digest. CRC32 is linear, so the CRC32 of `a`
+ text and of `b` + text differ by a number that depends only on the text's length."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.model.buckets import Buckets, RangeBuckets
from penstock.model.row_text import Shape, shape
from penstock.model.schema import DEFAULT_TYPES, Column, TypeOptions
from penstock.sources.mysql.identifiers import quote


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
    """`+ 0` removes the padding of ZEROFILL and converts BIT and YEAR to numbers."""
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
    """Under policy `null`, dates that are not a day of the years 1 to 9999 are NULL, as in the target.

    TO_DAYS is NULL for zero and partial dates, and continues past the end of a month (2024-02-31). Servers
    differ in whether they accept the year 0."""
    if types.zero_dates == "text":
        return name
    return f"IF(YEAR({name}) > 0 AND FROM_DAYS(TO_DAYS({name})) = DATE({name}), {name}, NULL)"


def text(columns: Sequence[Column], types: TypeOptions = DEFAULT_TYPES, *, key: Sequence[str] = ()) -> str:
    """The canonical text of these columns of a row. `key`: names of key columns, to which type choices do not
    apply."""
    cells = [cell(column, types, in_key=column.name in key) for column in columns]
    return cells[0] if len(cells) == 1 else "CONCAT(" + ", '|', ".join(cells) + ")"


def key_text(columns: Sequence[Column]) -> str:
    """The canonical text of key columns."""
    return text(columns, key=[column.name for column in columns])


def row_hash(
    columns: Sequence[Column], types: TypeOptions = DEFAULT_TYPES, *, key: Sequence[str] = ()
) -> str:
    """The first 60 bits of the SHA-256 of the row's text, as an unsigned integer."""
    return f"CAST(CONV(LEFT(SHA2({text(columns, types, key=key)}, 256), 15), 16, 10) AS UNSIGNED)"


def bucket(buckets: Buckets) -> str:
    """The number of the bucket to which a row belongs."""
    if isinstance(buckets, RangeBuckets):
        return f"{quote(buckets.column)} DIV {buckets.width}"
    return f"CRC32({key_text(buckets.columns)}) % {buckets.count}"


def in_buckets(buckets: Buckets, numbers: Collection[int]) -> str:
    """True for rows that belong to one of these buckets."""
    if not isinstance(buckets, RangeBuckets):
        return f"({bucket(buckets)}) IN ({', '.join(str(number) for number in sorted(numbers))})"
    parts = []
    for number in sorted(numbers):
        first, last = buckets.bounds(number)
        parts.append(f"{quote(buckets.column)} BETWEEN {first} AND {last}")
    return "(" + " OR ".join(parts) + ")"
