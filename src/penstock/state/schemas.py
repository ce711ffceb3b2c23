"""Definitions of tables, each held once under a number."""

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
"""Definitions that are held in memory as objects, so that most are parsed only once."""


class Schemas(Database):
    def __init__(self, directory: Path, *, read_only: bool = False, owner: bool = False) -> None:
        self._schemas: dict[int, TableSchema] = {}
        """Numbers are never given twice, but for those of a transaction that was taken back."""
        self._schemas_undone = 0
        super().__init__(directory, read_only=read_only, owner=owner)

    def schema(self, number: int) -> TableSchema:
        if self._schemas_undone != self._undone or len(self._schemas) > _KNOWN_MAX:
            self._schemas, self._schemas_undone = {}, self._undone
        found = self._schemas.get(number)
        if found is None:
            rows = self._rows("SELECT digest, schema FROM schemas WHERE id = ?", number)
            if not rows or digest_of(rows[0][1]) != rows[0][0]:
                raise self._unusable(
                    sqlite3.DatabaseError(f"the definition {number} is not as it was written")
                )
            found = self._schemas[number] = self.read(lambda: TableSchema.from_json(rows[0][1]))
        return found

    def read(self, parse: Callable[[], _Value]) -> _Value:
        """What is stored as text. Raises `ConfigError` if it is not what was written."""
        try:
            return parse()
        except (ValueError, KeyError, TypeError, IndexError) as error:
            reason = f"a stored value cannot be read ({type(error).__name__})"
            raise self._unusable(sqlite3.DatabaseError(reason)) from error
