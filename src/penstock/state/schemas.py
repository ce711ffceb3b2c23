"""Stores the definitions of tables, each one once under a number."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.model.schema import TableSchema
from penstock.state.database import Database
from penstock.state.layout import digest_of

_Value = TypeVar("_Value")
_KNOWN_MAX = 20_000
"""Maximum number of definitions that are cached as objects, so that most are parsed only once."""


class Schemas(Database):
    def __init__(self, directory: Path, *, read_only: bool = False, owner: bool = False) -> None:
        self._schemas: dict[int, TableSchema] = {}
        """The cache, by number. A number is never reused, except after its transaction was rolled back."""
        self._schemas_undone = 0
        super().__init__(directory, read_only=read_only, owner=owner)

    def schema(self, number: int) -> TableSchema:
        if self._schemas_undone != self._undone or len(self._schemas) > _KNOWN_MAX:
            self._schemas, self._schemas_undone = {}, self._undone
        found = self._schemas.get(number)
        if found is None:
            rows = self._rows("SELECT digest, schema FROM schemas WHERE id = ?", number)
            if not rows or digest_of(rows[0][1]) != rows[0][0]:
                raise self._unusable(sqlite3.DatabaseError(f"definition {number} is missing or was changed"))
            found = self._schemas[number] = self.read(lambda: TableSchema.from_json(rows[0][1]))
        return found

    def read(self, parse: Callable[[], _Value]) -> _Value:
        """Returns the result of `parse`, which parses a stored value. Raises `ConfigError` if that fails,
        because the file is damaged."""
        try:
            return parse()
        except (ValueError, KeyError, TypeError, IndexError) as error:
            reason = f"a stored value cannot be read ({type(error).__name__})"
            raise self._unusable(sqlite3.DatabaseError(reason)) from error
