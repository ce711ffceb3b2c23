"""SQL of reads: names, values and conditions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from penstock.model.chunk import Chunk
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.conditions import Lexis
from penstock.sources.named_keys import parse_value
from penstock.sources.postgresql.catalog import PgTable

_CALLS = """in and or not between when then else case any like ilike is lower upper length coalesce nullif abs
date_trunc date_part extract substring left right trim floor ceil round mod now"""
LEXIS = Lexis(quotes="'\"", escaping="", ends=";$\\\0", calls=frozenset(_CALLS.split()))
"""A condition needs no backslash (`E'…'`) and no `$` (`$$…$$`)."""


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted(table: TableId) -> str:
    return f"{quote(table.database)}.{quote(table.table)}"


def text(value: str) -> str:
    """A literal without a type: it has that of the column that it is compared with."""
    return "'" + value.replace("'", "''") + "'"


def rows_of(table: PgTable) -> str:
    """The table in a FROM clause. Tables that inherit from it are tables of their own; partitions are not."""
    return quoted(table.table) if table.kind == "p" else f"ONLY {quoted(table.table)}"


def files_of(table: PgTable) -> str:
    """The files that have the table's rows, as a short text."""
    files = [(one.number, one.file) for one in table.leaves] or [(table.number, table.file)]
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()[:16]


def key_literal(column: Column, value: Any) -> str:
    parsed = parse_value(column, value)
    if isinstance(parsed, bytes):
        return text("\\x" + parsed.hex())
    if isinstance(parsed, str):
        return text(parsed)
    return format(parsed, "f") if isinstance(parsed, Decimal) else str(parsed)


def range_condition(key: Sequence[str], lower: tuple[str, ...] | None, upper: tuple[str, ...] | None) -> str:
    """A condition for `lower <= key < upper`; empty if both ends are open."""
    names = ", ".join(map(quote, key))
    parts = [
        f"({names}) {operator} ({', '.join(bound)})"
        for operator, bound in ((">=", lower), ("<", upper))
        if bound is not None
    ]
    return " AND ".join(parts)


def key_condition(schema: TableSchema, keys: Sequence[KeyValues]) -> str:
    """A condition that is true for rows with one of the keys."""
    columns = [schema.column(name) for name in schema.key]
    rows = [
        "(" + ", ".join(key_literal(column, value) for column, value in zip(columns, key, strict=True)) + ")"
        for key in keys
    ]
    return f"({', '.join(map(quote, schema.key))}) IN ({', '.join(rows)})"


def select_rows(table: PgTable, chunk: Chunk) -> str:
    """The SELECT of a chunk, with the columns of the table in order. Columns whose binary form is not known
    are read as text."""
    columns = ", ".join(
        quote(one.name) if one.reads_binary else f"{quote(one.name)}::text" for one in table.columns
    )
    key, lower, upper = table.key, chunk.lower, chunk.upper
    if not key:  # the bounds have the place first (`split.py`)
        key, lower, upper = ("ctid",), lower and lower[:1], upper and upper[:1]
    parts = [range_condition(key, lower, upper), chunk.condition, table.row_filter or ""]
    parts.append(key_condition(table.schema, chunk.keys) if chunk.keys else "")
    where = " AND ".join(f"({part})" for part in parts if part)
    return f"SELECT {columns} FROM {rows_of(table)}" + (f" WHERE {where}" if where else "")
