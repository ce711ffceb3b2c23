"""Names as SQL for MySQL and MariaDB."""

from __future__ import annotations

from penstock.model.schema import TableId


def quote(identifier: str) -> str:
    """Returns the name as an identifier in backticks."""
    return "`" + identifier.replace("`", "``") + "`"


def quoted(table: TableId) -> str:
    """A table's name with its database."""
    return f"{quote(table.database)}.{quote(table.table)}"
