"""Rebuilds tables from entries alone, as an application of Canal would."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.testing import oracle
from penstock.testing.oracle import OracleColumn, Row

_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}

Place = tuple[str, int]
"""File and position of an entry. They grow in the log of one server."""


@dataclass
class Rebuilt:
    """`tables`: by `database.table`, the rows by their key. Changes are applied again where a batch comes
    again, which makes no difference in the end. `rows`: changes of rows that came. `repeated`: of these,
    those that came again. `after_acknowledgement`: of these, those that must not have come again."""

    columns: Mapping[str, Sequence[OracleColumn]]
    tables: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    rows: int = 0
    repeated: int = 0
    after_acknowledgement: int = 0
    _last: Place = ("", 0)
    _acknowledged: Place = ("", 0)

    def apply(self, batch: Sequence[Sequence[Any]]) -> None:
        """The rows of a batch (`JavaClient.rows`)."""
        for event, database, table, file, position, before, *after in batch:
            place = (file, position)
            name = f"{database}.{table}"
            if not after or name not in self.columns:
                continue
            self.rows += 1
            self.repeated += place < self._last
            self.after_acknowledgement += place <= self._acknowledged
            self._last = max(self._last, place)
            rows = self.tables.setdefault(name, {})
            if event in ("UPDATE", "DELETE"):
                rows.pop(self._key(name, before), None)
            if event in ("INSERT", "UPDATE"):
                rows[self._key(name, after[0])] = after[0]

    def acknowledged(self, batch: Sequence[Sequence[Any]]) -> None:
        self._acknowledged = max([self._acknowledged, *((row[3], row[4]) for row in batch)])

    def acknowledged_up_to(self, place: Place) -> None:
        """A row before this place must not come again."""
        self._acknowledged = max(self._acknowledged, (place[0], place[1] - 1))

    def _key(self, name: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[one.name] for one in self.columns[name] if one.key_part is not None)

    def rows_of(self, name: str) -> list[Row]:
        """The table's rows, in the form of `oracle.rows_of`."""
        columns = self.columns[name]
        found = [
            tuple(_canonical(row.get(one.name), one.type) for one in columns)
            for row in self.tables.get(name, {}).values()
        ]
        return oracle.sorted_rows(found, columns)


def _canonical(value: str | None, type: str) -> str | None:
    if value is None:
        return None
    if type in _BYTES:
        return value.encode("latin-1").hex().upper()
    if type == "float":
        return repr(struct.unpack("f", struct.pack("f", float(value)))[0])
    return repr(float(value)) if type == "double" else oracle.canonical(value, type)
