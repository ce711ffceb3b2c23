"""Works out how a target's columns change when the definition of its source table has changed. Pure.

The result is one `Change` for each column that the target will have. With `narrowing: keep`, a column whose
type in the target is wider than the new one keeps it: no row is rewritten, and later values fit. If neither
type holds the other's values, the column is converted row by row. A value that cannot be converted becomes
NULL until its row is written again. If the source's own conversion may give another value, the table is read
again anyway (`TableEffect.rereads`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    IntegralType,
    NumericType,
    StringType,
    StructType,
)

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import EvolvedColumn, Narrowing
from penstock.sinks.names import TEMPORARY, Reserved, refuse_columns, source_columns
from penstock.sinks.spark_sql import holds, quoted, spark_type

_TEMPORARY_MAX = 32
"""Characters of a temporary column behind the prefix: MySQL takes names of 64 characters."""


@dataclass(frozen=True)
class Change:
    """One column after the schema change. `kind`: its new type. `before`: its name so far (None: `add`).

    `how`: `keep` changes at most the column's name and position. `widen` changes its type, but no row.
    `convert` rewrites its values. `add` creates it; existing rows get `default`, a constant in Spark SQL, or
    NULL.
    """

    name: str
    kind: DataType
    how: Literal["keep", "widen", "convert", "add"]
    before: str | None = None
    default: str | None = None
    key: int = 0
    """See `EvolvedColumn`."""

    @property
    def temporary(self) -> str:
        """The temporary column for computed values. Long names give way to a digest of them."""
        digest = hashlib.sha256(self.name.encode("utf-8", "surrogatepass")).hexdigest()
        return TEMPORARY + (self.name if len(self.name) <= _TEMPORARY_MAX else digest[:_TEMPORARY_MAX])


def changes(
    table: TableId,
    present: StructType,
    columns: Sequence[EvolvedColumn],
    *,
    reserved: Reserved,
    stored: Callable[[DataType], DataType],
    widens: Callable[[DataType, DataType], bool],
    narrowing: Narrowing,
) -> list[Change]:
    """One change for each of `columns`. `present`: the target's columns so far. `reserved`: see
    `SinkOptions.reserved`. `stored`, `widens`: see
    `LakeFormat`. Raises `TableError` if the target lacks a column that it should have."""
    refuse_columns(table, [column.field.name for column in columns], reserved)
    names = set(source_columns(present.names))
    types = {field.name: field.dataType for field in present if field.name in names}
    found = []
    for column in columns:
        kind = stored(spark_type(column.field))
        before = _name_in(types, column.before)
        if column.before is not None and before is None and not column.refills:
            raise TableError(
                f"The target of {table} has no column {column.before}, which {column.field.name} comes from.",
                hint=f"Run `penstock resnapshot FILE {argument(table)}`.",
                table=str(table),
            )
        if before is None:
            found.append(Change(column.field.name, kind, "add", None, column.default, column.key))
            continue
        old = types[before]
        if old == kind or (narrowing == "keep" and holds(old, kind)):
            found.append(Change(column.field.name, old, "keep", before, key=column.key))
        else:
            how: Literal["widen", "convert"] = "widen" if widens(old, kind) else "convert"
            found.append(Change(column.field.name, kind, how, before, key=column.key))
    return found


def only_adds(present: StructType, changed: Sequence[Change]) -> bool:
    """Whether the change only adds columns that are NULL or widens types, so that existing rows stay as they
    are. For sinks that store a value in the same way in a wider type."""
    kept = {one.before for one in changed if one.before == one.name and one.how in ("keep", "widen")}
    others = [one for one in changed if one.before is not None or one.default is not None]
    return set(present.names) == kept and len(others) == len(kept)


def key_after(changed: Sequence[Change], before: Sequence[str]) -> tuple[str, ...]:
    """The columns of the key after the change, in the key's order. `before`: those so far."""
    own = sorted((one for one in changed if one.key), key=lambda one: one.key)
    if own:
        return tuple(one.name for one in own)
    names = {one.before: one.name for one in changed if one.before is not None}
    return tuple(names[name] for name in before if name in names)


def refuse_new_names(
    table: TableId,
    columns: Sequence[EvolvedColumn],
    changed: Sequence[Change],
    present: StructType,
    before: Sequence[str],
    *,
    converts: bool = False,
) -> None:
    """For sinks that call each row by the values of its key. Raises `TableError` if rows would need other
    names, so that the table is read again. It says nothing if that is being done. `before`: the key so far.
    `converts`: the sink itself gives new names to rows if types of the key's columns change."""
    if all(column.refills for column in columns):
        return
    after = {one.name: one for one in changed}
    key = [after[name] for name in key_after(changed, before)]
    same = [one.before for one in key] == list(before)
    if same and (converts or all(_same_text(present[str(one.before)].dataType, one.kind) for one in key)):
        return
    raise TableError(
        f"The key of {table} has changed, and by it the target calls its rows.",
        hint=f"The table is read again. If it stays parked: `penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
        read_again=True,
    )


def _same_text(old: DataType, kind: DataType) -> bool:
    """Whether a value has the same text in both types."""
    return old == kind or (_is_whole(old) and _is_whole(kind)) or _scale(old) == _scale(kind) is not None


def _is_whole(kind: DataType) -> bool:
    return isinstance(kind, IntegralType) or _scale(kind) == 0


def _scale(kind: DataType) -> int | None:
    return kind.scale if isinstance(kind, DecimalType) else None


def dropped(present: StructType, changed: Sequence[Change], computed: Sequence[Change]) -> list[str]:
    """Columns to drop: those that the target should no longer have, and temporary columns of an earlier
    attempt."""
    kept = {change.before for change in changed}
    removed = [name for name in source_columns(present.names) if name not in kept]
    temporary = {change.temporary for change in computed}
    return removed + [name for name in present.names if name.startswith(TEMPORARY) and name not in temporary]


def converted(column: str, old: DataType, kind: DataType) -> str:
    """Spark SQL for a column's values in another type. A value that does not fit becomes NULL."""
    if isinstance(kind, ArrayType) and not isinstance(old, ArrayType):
        return f"from_json(CAST({quoted(column)} AS STRING), '{kind.simpleString()}')"
    if isinstance(old, ArrayType) and not isinstance(kind, ArrayType):
        return f"try_cast(to_json({quoted(column)}) AS {kind.simpleString()})"
    if isinstance(old, ArrayType) and isinstance(kind, ArrayType):
        return f"try_cast({quoted(column)} AS {kind.simpleString()})"
    simple = (NumericType, BooleanType)
    if isinstance(kind, StringType) or (isinstance(old, simple) and isinstance(kind, simple)):
        return f"try_cast({quoted(column)} AS {kind.simpleString()})"
    return f"try_cast(CAST({quoted(column)} AS STRING) AS {kind.simpleString()})"


def assignments(present: StructType, computed: Sequence[Change]) -> str:
    """The SET list of an UPDATE that fills the temporary columns."""
    types = {field.name: field.dataType for field in present}
    values = [
        converted(change.before, types[change.before], change.kind)
        if change.before is not None
        else f"CAST({change.default} AS {change.kind.simpleString()})"
        for change in computed
    ]
    return ", ".join(
        f"{quoted(change.temporary)} = {value}" for change, value in zip(computed, values, strict=True)
    )


def _name_in(names: dict[str, DataType], name: str | None) -> str | None:
    if name is None or name in names:
        return name
    return next((known for known in names if known.lower() == name.lower()), None)
