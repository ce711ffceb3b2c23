"""Turns keys that a person or program names (`sources/named_keys.py`) into SQL."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import Column, TableSchema
from penstock.sources.mysql.identifiers import quote
from penstock.sources.named_keys import parse_value


def key_condition(schema: TableSchema, keys: Sequence[KeyValues]) -> str:
    """An SQL condition that is true for rows with one of the keys."""
    columns = [schema.column(name) for name in schema.key]
    if len(columns) == 1:
        values = ", ".join(key_literal(columns[0], key[0]) for key in keys)
        return f"{quote(columns[0].name)} IN ({values})"
    rows = [
        " AND ".join(f"{quote(c.name)} = {key_literal(c, v)}" for c, v in zip(columns, key, strict=True))
        for key in keys
    ]
    return " OR ".join(f"({row})" for row in rows)


def key_literal(column: Column, value: Any) -> str:
    """A value as digits or hexadecimal bytes, so that no part of it reads as SQL."""
    parsed = parse_value(column, value)
    if isinstance(parsed, bytes):
        return f"x'{parsed.hex()}'"
    if isinstance(parsed, str):
        return f"_utf8mb4 x'{parsed.encode().hex()}'"
    return format(parsed, "f") if isinstance(parsed, Decimal) else str(parsed)
