"""Returns the true content of a table, by a SELECT at the server, as rows of canonical text. The rows of a
target can be compared with it.

    expected = oracle.rows_of(server, "shop.orders")
    actual = oracle.canonical_rows(target_rows, oracle.columns_of(server, "shop.orders"))
    oracle.assert_same_rows(expected, actual)

Nothing of the decode path is used here: the server formats the text, and PyMySQL transfers it.

| type | canonical text |
|---|---|
| integers, YEAR, BIT | decimal digits |
| DECIMAL | fixed notation with the column's scale |
| FLOAT, DOUBLE | `repr` of the double (a FLOAT widened) |
| DATE, DATETIME, TIMESTAMP, TIME | as the server prints them, in UTC, a fraction without trailing zeros |
| CHAR … TEXT, ENUM, SET, JSON | the text |
| BINARY … BLOB, spatial types | upper-case hex |
"""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.model.schema import TableId
from penstock.sources.mysql.identifiers import quoted
from penstock.testing.servers import MySqlClient

Row = tuple[str | None, ...]

_BINARY = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_SPATIAL = {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
            "geometrycollection", "geomcollection"}  # fmt: skip
_FRACTIONS = {"datetime", "timestamp", "time"}
_FLOATS = {"float", "double"}


@dataclass(frozen=True)
class OracleColumn:
    name: str
    type: str
    key_part: int | None
    """Place in the primary key, from 1. None if the column is not part of it."""


def columns_of(server: MySqlClient, table: str) -> list[OracleColumn]:
    """Returns the columns of `database.table` in order, from information_schema. Raises `LookupError` if the
    server has no such table."""
    known = TableId.parse(table)
    rows = server.query(
        "SELECT c.column_name, c.data_type, k.ordinal_position FROM information_schema.columns c "
        "LEFT JOIN information_schema.key_column_usage k ON k.table_schema = c.table_schema AND "
        "k.table_name = c.table_name AND k.column_name = c.column_name AND k.constraint_name = 'PRIMARY' "
        "WHERE c.table_schema = %s AND c.table_name = %s ORDER BY c.ordinal_position",
        (known.database, known.table),
    )
    if not rows:
        raise LookupError(f"The server has no table {table}.")
    return [OracleColumn(str(row[0]), str(row[1]).lower(), row[2]) for row in rows]


def rows_of(server: MySqlClient, table: str, columns: Sequence[str] | None = None) -> list[Row]:
    """Returns the rows of `database.table` as canonical text, sorted by the text of the key (of all columns
    if there is no key).

    `columns` names the columns to read; the default is all.
    """
    described = columns_of(server, table)
    chosen = [column for column in described if columns is None or column.name in columns]
    expressions = ", ".join(_expression(column) for column in chosen)
    with server.connect(init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {expressions} FROM {quoted(TableId.parse(table))}")
        rows = [
            tuple(_from_server(value, column.type) for value, column in zip(row, chosen, strict=True))
            for row in cursor.fetchall()
        ]
    return sorted_rows(rows, chosen)


def canonical_rows(
    rows: Iterable[Sequence[Any] | Mapping[str, Any]], columns: Sequence[OracleColumn]
) -> list[Row]:
    """Converts the rows of a target to the form of `rows_of`. A row is a sequence in the order of the
    columns, or a mapping by name."""
    result: list[Row] = []
    for row in rows:
        values = [row[column.name] for column in columns] if isinstance(row, Mapping) else row
        result.append(
            tuple(canonical(value, column.type) for value, column in zip(values, columns, strict=True))
        )
    return sorted_rows(result, columns)


def sorted_rows(rows: Iterable[Row], columns: Sequence[OracleColumn]) -> list[Row]:
    places = [index for index, column in enumerate(columns) if column.key_part is not None] or list(
        range(len(columns))
    )
    return sorted(rows, key=lambda row: tuple((row[place] is not None, row[place] or "") for place in places))


def canonical(value: Any, type: str) -> str | None:
    """Converts one Python value of a target (Spark's `collect()`, pyarrow's `as_py()`) to canonical text."""
    if value is None:
        return None
    if type == "bit" and isinstance(value, bytes | bytearray):
        return str(int.from_bytes(value, "big"))
    match value:
        case bool():
            return str(int(value))
        case float() | int() if type in _FLOATS:
            return repr(float(value))
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():
            moment = value if value.tzinfo is None else value.astimezone(datetime.timezone.utc)
            return _trimmed(moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds"))
        case datetime.timedelta():
            return _duration(value)
        case datetime.time():
            return _trimmed(value.isoformat(timespec="microseconds"))
        case bytes() | bytearray():
            return value.hex().upper()
        case str() if type in _FRACTIONS:
            return _trimmed(value)
    return str(value)


def assert_same_rows(expected: Sequence[Row], actual: Sequence[Row]) -> None:
    """Fails if the rows differ, and shows some missing and some surplus rows. Duplicates count."""
    difference = compare(expected, actual)
    assert not difference, difference


def compare(expected: Sequence[Row], actual: Sequence[Row], *, shown: int = 5) -> str:
    """Returns an empty string if both contain the same rows equally often, otherwise a text about the
    difference. `shown`: maximum number of missing and of surplus rows in the text."""
    wanted, found = Counter(expected), Counter(actual)
    missing, extra = wanted - found, found - wanted
    if not missing and not extra:
        return ""
    counts = f"{missing.total()} missing, {extra.total()} too many"
    lines = [f"{len(expected)} rows expected, {len(actual)} found: {counts}"]
    lines += [f"  missing {row} x{count}" for row, count in list(missing.items())[:shown]]
    lines += [f"  extra   {row} x{count}" for row, count in list(extra.items())[:shown]]
    return "\n".join(lines)


def _expression(column: OracleColumn) -> str:
    name = _quote(column.name)
    if column.type in _BINARY or column.type in _SPATIAL:
        return f"HEX({name})"
    if column.type in ("bit", *_FLOATS):
        return f"{name} + 0e0" if column.type in _FLOATS else f"{name} + 0"
    if column.type == "json":
        return f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"
    if column.type in _FRACTIONS | {"date"}:
        return f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"
    return f"COALESCE({name})" if column.name == "*" else name  # alone, MySQL 8.0 reads it as all columns


def _from_server(value: Any, type: str) -> str | None:
    return canonical(value, type) if type in _FRACTIONS | _FLOATS or not isinstance(value, str) else value


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _duration(value: datetime.timedelta) -> str:
    sign, value = ("-", -value) if value < datetime.timedelta(0) else ("", value)
    seconds = value.days * 86_400 + value.seconds
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return sign + _trimmed(f"{clock}.{value.microseconds:06d}")


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
