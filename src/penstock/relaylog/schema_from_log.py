"""Reads the definition of a table from the log itself.

Some sources write the names and types of a table's columns into the log. Log that is older than the catalog's
definition can then be decoded without a stored history of definitions."""

from __future__ import annotations

import json
from dataclasses import replace

from penstock._core import first_described
from penstock.model.offset import LogRange
from penstock.model.schema import Column, TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_bytes import opened

_WHOLE_BYTES = 1 << 62
"""An aim for splits that is larger than any log: one split per segment, because only the first rows are
looked at."""


def described(log: RelayLog, known: TableSchema, range_: LogRange) -> TableSchema | None:
    """The definition under which the first rows of the table in the range were written. None: the range has
    no such rows, or its table maps have no names.

    Columns with the same name and type as in `known`, the catalog's definition, are taken from there. For
    other columns, defaults, collations and generation expressions are unknown."""
    for split in log.splits(range_, known.table, bytes_aim=_WHOLE_BYTES):
        text = first_described(known.to_json(), *opened(split).place)
        if text is not None:
            return _merged(known, json.loads(text))
    return None


def _merged(known: TableSchema, found: dict[str, object]) -> TableSchema:
    columns = found["columns"]
    assert isinstance(columns, list)
    merged = tuple(_column(known, fields) for fields in columns)
    names = {column.name for column in merged}
    key = found["key"] if isinstance(found["key"], list) else known.key
    unique = known.unique
    if unique is not None and any(
        part.column not in names for one in unique for part in one.parts if part.column
    ):
        unique = None  # of another time
    return replace(known, columns=merged, key=tuple(key) if names.issuperset(key) else (), unique=unique)


def _column(known: TableSchema, fields: dict[str, object]) -> Column:
    if fields.get("known"):
        return known.column(str(fields["name"]))
    return Column.from_json(fields)
