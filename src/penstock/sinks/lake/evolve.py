"""How the columns of a target become those of a table that has another definition now.

Pure: from the columns a target has and the columns it is to have, one `Change` for each. A target's type may
be wider than the source's, and stays so (`narrowing: keep`): no row is rewritten, none loses anything, and
what is written later fits. Only a type that holds the other's values in no way is converted, row by row:
a value that cannot be converted becomes NULL until the row is written again. Where the source's own
conversion may give another value, the table is read again anyway (`TableEffect.rereads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import (
    BooleanType,
    DataType,
    NumericType,
    StringType,
    StructType,
)

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import EvolvedColumn, Narrowing
from penstock.sinks.names import ASIDE, refuse_columns, source_columns
from penstock.sinks.spark_sql import holds, quoted, spark_type


@dataclass(frozen=True)
class Change:
    """One column as it is to be, in its place. `before`: the name it has now (None: `add`). `kind`: its type
    from here on.

    how: `keep` (at most its name and place change), `widen` (its type does, no row does), `convert` (rows
    are), `add` (rows that exist get `default`, a constant of Spark SQL, else NULL).
    """

    name: str
    kind: DataType
    how: Literal["keep", "widen", "convert", "add"]
    before: str | None = None
    default: str | None = None

    @property
    def aside(self) -> str:
        return ASIDE + self.name


def changes(
    table: TableId,
    present: StructType,
    columns: Sequence[EvolvedColumn],
    *,
    stored: Callable[[DataType], DataType],
    widens: Callable[[DataType, DataType], bool],
    narrowing: Narrowing,
) -> list[Change]:
    """`present`: the target's columns. `stored`: the type by which the format keeps a type. `widens`: whether
    the format can turn one type into another without touching rows."""
    refuse_columns(table, [column.field.name for column in columns])
    names = set(source_columns(present.names))
    held = {field.name: field.dataType for field in present if field.name in names}
    found = []
    for column in columns:
        kind = stored(spark_type(column.field))
        before = _name_in(held, column.before)
        if column.before is not None and before is None and not column.refills:
            raise TableError(
                f"The target of {table} has no column {column.before}, which {column.field.name} comes from.",
                hint=f"Run `penstock resnapshot FILE {argument(table)}`.",
                table=str(table),
            )
        if before is None:
            found.append(Change(column.field.name, kind, "add", None, column.default))
            continue
        old = held[before]
        if old == kind or (narrowing == "keep" and holds(old, kind)):
            found.append(Change(column.field.name, old, "keep", before))
        else:
            how: Literal["widen", "convert"] = "widen" if widens(old, kind) else "convert"
            found.append(Change(column.field.name, kind, how, before))
    return found


def dropped(present: StructType, changed: Sequence[Change]) -> list[str]:
    """Columns that the target has and is not to have any more; also what a change given up has left."""
    kept = {change.before for change in changed}
    gone = [name for name in source_columns(present.names) if name not in kept]
    asides = {change.aside for change in changed if change.how == "convert"}
    return gone + [name for name in present.names if name.startswith(ASIDE) and name not in asides]


def converted(column: str, old: DataType, kind: DataType) -> str:
    """Spark SQL for a column's values in another type; NULL where there is none."""
    simple = (NumericType, BooleanType)
    if isinstance(kind, StringType) or (isinstance(old, simple) and isinstance(kind, simple)):
        return f"try_cast({quoted(column)} AS {kind.simpleString()})"
    return f"try_cast(CAST({quoted(column)} AS STRING) AS {kind.simpleString()})"


def assignments(present: StructType, waiting: Sequence[Change]) -> str:
    """The SET list that fills the columns aside."""
    types = {field.name: field.dataType for field in present}
    values = [
        converted(change.before, types[change.before], change.kind)
        if change.before is not None
        else f"CAST({change.default} AS {change.kind.simpleString()})"
        for change in waiting
    ]
    return ", ".join(
        f"{quoted(change.aside)} = {value}" for change, value in zip(waiting, values, strict=True)
    )


def _name_in(names: dict[str, DataType], name: str | None) -> str | None:
    if name is None or name in names:
        return name
    return next((known for known in names if known.lower() == name.lower()), None)
