"""Names as SQL for MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count

from penstock.model.schema import TableId


def quote(identifier: str) -> str:
    """Returns the name as an identifier in backticks."""
    return "`" + identifier.replace("`", "``") + "`"


def quoted(table: TableId) -> str:
    """A table's name with its database."""
    return f"{quote(table.database)}.{quote(table.table)}"


def add_key_sql(table: TableId, columns: Collection[str] = ()) -> str:
    """The statement that gives a table without a key a primary key: a new column. `columns`: names, in lower
    case, that the table has."""
    names = chain(["penstock_id"], (f"penstock_id_{number}" for number in count(2)))
    name = next(name for name in names if name not in columns)
    return (
        f"ALTER TABLE {quoted(table)} ADD COLUMN {quote(name)} BIGINT UNSIGNED NOT NULL "
        "AUTO_INCREMENT PRIMARY KEY"
    )
