"""Reads the foreign keys by which the server changes rows of captured tables, from `information_schema`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.model.schema import PASSIVE_RULES, CascadingKey, TableId
from penstock.sources.mysql.connection import query


def read_cascading_keys(
    connection: Any, tables: Iterable[TableId]
) -> dict[TableId, tuple[CascadingKey, ...]]:
    """The cascading foreign keys of each table that has any, ordered by name."""
    wanted = set(tables)
    passive = ", ".join(f"'{rule}'" for rule in PASSIVE_RULES)
    rules = query(
        connection,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS "
        f"WHERE UPDATE_RULE NOT IN ({passive}) OR DELETE_RULE NOT IN ({passive})",
    )
    found: dict[TableId, list[CascadingKey]] = {}
    for database, name, constraint, on_delete, on_update in sorted(map(_texts, rules)):
        table = TableId(database, name)
        if table in wanted:
            key = _key(connection, table, constraint, on_delete, on_update)
            found.setdefault(table, []).extend(key)
    return {table: tuple(keys) for table, keys in found.items()}


def _key(
    connection: Any, table: TableId, constraint: str, on_delete: str, on_update: str
) -> list[CascadingKey]:
    """One key from its rows. None if it was dropped between the two queries."""
    rows = query(
        connection,
        "SELECT COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME "
        "FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND "
        "CONSTRAINT_NAME = %s AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY ORDINAL_POSITION",
        (table.database, table.table, constraint),
    )
    if not rows:
        return []
    parent = TableId(str(rows[0][1]), str(rows[0][2]))
    columns, referenced = (tuple(str(row[place]) for row in rows) for place in (0, 3))
    return [CascadingKey(constraint, columns, parent, referenced, on_delete, on_update)]


def _texts(row: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in row)
