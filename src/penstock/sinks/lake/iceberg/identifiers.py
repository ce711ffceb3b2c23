"""Iceberg's identifier fields: the columns of the key, which other engines merge and upsert by.

Iceberg wants them NOT NULL. So a new target has them if its key consists of columns that are never NULL
there. A DATE, DATETIME or TIMESTAMP may be: a zero date arrives as NULL. Floating-point numbers are not
allowed.

When the key changes, they follow: a column that was nullable so far becomes NOT NULL if no row has NULL in
it, as far as the files say. Otherwise the target goes without identifier fields, and nothing in it stays NOT
NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from penstock.sinks.evolve import Change
from penstock.sinks.lake.iceberg.branch import OnBranch
from penstock.sinks.lake.iceberg.files import Classes, schema_fields
from penstock.sinks.lake.iceberg.manifests import data_files

_NEVER_NULL = (BinaryType, BooleanType, DecimalType, IntegerType, LongType, StringType)


def identifiable(kinds: Mapping[str, DataType], key: Sequence[str]) -> tuple[str, ...]:
    """The identifier fields of a new table with this key. Empty: it has none. `kinds`: types by column."""
    return tuple(key) if all(isinstance(kinds.get(name), _NEVER_NULL) for name in key) else ()


def with_required(columns: StructType, names: Sequence[str]) -> StructType:
    """The columns. Those with these names are made NOT NULL."""
    found = StructType()
    for field in columns:
        found.add(field.name, field.dataType, field.nullable and field.name not in names)
    return found


def followed(
    present: Sequence[str],
    changed: Sequence[Change],
    computed: Sequence[Change],
    has_nulls: Callable[[str], bool],
) -> tuple[str, ...]:
    """The identifier fields after a change of columns. `present`: those before it. `has_nulls`: whether a
    column, given by its name before the change, is nullable and has NULL in some row."""
    key = [change for change in changed if change.key]
    if not present or any(change.before is None or change in computed for change in key):
        return ()
    if any(has_nulls(change.before) for change in key if change.before is not None):
        return ()
    return identifiable({change.name: change.kind for change in key}, [change.name for change in key])


def has_nulls(classes: Classes, target: Any, name: str) -> bool:
    """Whether a column is nullable and may have NULL in some row."""
    field = next(one for one in schema_fields(classes, target) if one["name"] == name)
    if field["required"]:
        return False
    snapshot = target.currentSnapshot()
    if isinstance(target, OnBranch):
        return True  # rows of other branches may have NULL
    if snapshot is None:
        return False
    for file in data_files(classes, target, snapshot):
        counts = file.described.get("null-value-counts") or {"keys": [], "values": []}
        if dict(zip(counts["keys"], counts["values"], strict=True)).get(field["id"], 1):
            return True
    return False


def identify(classes: Classes, change: Any, names: Sequence[str]) -> None:
    """Makes these columns the identifier fields. `change`: a table or a transaction. The caller knows that no
    row has NULL in them."""
    update = change.updateSchema().allowIncompatibleChanges()
    for name in names:
        update.requireColumn(name)
    update.setIdentifierFields(classes.list_of(names)).commit()
