"""Names as SQL for MySQL and MariaDB."""

from __future__ import annotations

from penstock.model.schema import TableId


def quote(identifier: str) -> str:
    """An identifier, whatever characters it has."""
    return "`" + identifier.replace("`", "``") + "`"


def quoted(table: TableId) -> str:
    """A table's name with its database."""
    return f"{quote(table.database)}.{quote(table.table)}"
