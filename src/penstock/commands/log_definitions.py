"""Definitions of tables along a log, for `penstock encode`: those that the log says itself, and those of SQL.

SQL is read only when there is some: a log that defines its tables itself needs no grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.encode.schema_changes import TableChange
from penstock.model.schema import TableId, TableSchema
from penstock.sources.logged_definitions import defined, said_by

if TYPE_CHECKING:
    from penstock._core import LogEncoder
    from penstock.commands.encode_definitions import Definitions


class LogDefinitions:
    """`of_sql` makes the definitions of SQL. `given`: it has some of tables where the log begins."""

    def __init__(self, of_sql: Callable[[], Definitions], *, given: bool) -> None:
        self._make = of_sql
        self._of_sql: Definitions | None = of_sql() if given else None
        self._said: dict[TableId, TableSchema] = {}

    def schemas(self) -> list[str]:
        """The definitions where the log begins, as JSON."""
        return [] if self._of_sql is None else self._of_sql.schemas()

    def cure(self, table: str) -> str:
        """What to do about a table whose definition is not known."""
        return self._sql.cure(table)

    def follow(self, encoder: LogEncoder, statement: Mapping[str, Any]) -> list[TableChange]:
        """Tells the encoder what a statement in the log changes. Returns the changes that are known."""
        if said_by(statement) is None:
            return self._sql.follow(encoder, statement)
        if (found := defined(statement)) is None:
            return []
        table, schema = found  # the encoder reads it itself
        before, self._said[table] = self._said.get(table), schema
        return [TableChange(table, before, schema)]

    @property
    def _sql(self) -> Definitions:
        if self._of_sql is None:
            self._of_sql = self._make()
        return self._of_sql
