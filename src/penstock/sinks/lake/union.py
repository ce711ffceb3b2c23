"""Works out the columns of a target that several source tables share: the union of their columns, by name.
Pure.

The input is the target's columns, the claims of all shards, and the new columns of one shard. The result is
the target's new columns, and the values that rows of this shard get. Values of other shards never change:

- If another shard has the same column, the column gets a type that holds all values of both. If there is no
  such type, the shard is refused.
- If the shard loses a column that another shard has, the column stays, with NULL in the shard's own rows.
- A column that no other shard has changes like the column of any target.

If the process is killed during a schema change, the change is worked out and made again. So every change
before the commit must be repeatable: values are only set to constants. If a column is renamed while another
shard keeps the old name, its values would have to be copied, which is not repeatable. Then the shard is read
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ShortType,
    StructField,
    StructType,
)

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import EvolvedColumn
from penstock.sinks.names import source_columns
from penstock.sinks.refusals import other_key, same_key
from penstock.sinks.spark_sql import INTEGER_DIGITS, spark_type

_EXACT_IN_DOUBLE = (ByteType, ShortType, IntegerType, FloatType, DoubleType)


def common_type(one: DataType, other: DataType) -> DataType | None:
    """The narrowest type that holds every value of both types exactly. None: there is none."""
    if one == other:
        return one
    if type(one) in INTEGER_DIGITS and type(other) in INTEGER_DIGITS:
        return max(one, other, key=lambda kind: INTEGER_DIGITS[type(kind)])
    if isinstance(one, _EXACT_IN_DOUBLE) and isinstance(other, _EXACT_IN_DOUBLE):
        return DoubleType()
    first, second = _decimal(one), _decimal(other)
    if first is None or second is None:
        return None
    scale = max(first.scale, second.scale)
    precision = max(first.precision - first.scale, second.precision - second.scale) + scale
    return DecimalType(precision, scale) if precision <= 38 else None


def _decimal(kind: DataType) -> DecimalType | None:
    if type(kind) in INTEGER_DIGITS:
        return DecimalType(INTEGER_DIGITS[type(kind)], 0)
    return kind if isinstance(kind, DecimalType) else None


@dataclass(frozen=True)
class Claim:
    """A shard's columns, by their names at the source, and its key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps({"columns": self.columns, "key": self.key}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Claim:
        fields = json.loads(text)
        return cls(tuple(fields["columns"]), tuple(fields["key"]))

    def has(self, column: str) -> bool:
        return column.lower() in {name.lower() for name in self.columns}


@dataclass
class Joined:
    """What a target needs for the columns of all its shards. `columns`: the target's new columns, without the
    shard column. `added`: those that must exist before values are set. `values`: for a column, the value that
    the shard's rows get, in Spark SQL."""

    columns: list[EvolvedColumn] = field(default_factory=list)
    added: list[StructField] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)


def joined(
    shard: TableId,
    present: StructType,
    columns: Sequence[EvolvedColumn],
    claims: Mapping[TableId, Claim],
) -> Joined:
    """Works out the columns of a target after a change of one shard. `present`: the target's columns so far,
    without the shard column. `columns`: the new columns of `shard`, in the types in which the target stores
    them. `claims`: those of all shards so far.

    Raises `TableError` if a column cannot be shared, or if the shard must be read again."""
    others = {name.lower() for table, claim in claims.items() if table != shard for name in claim.columns}
    own = {name.lower() for name in claims[shard].columns} if shard in claims else set()
    names = set(source_columns(present.names))
    there = {one.name.lower(): one for one in present if one.name in names}
    leaving = {c.before.lower() for c in columns if c.before and c.before.lower() != c.field.name.lower()}
    found: dict[str, EvolvedColumn] = {}
    result = Joined()
    for column in columns:
        name = column.field.name.lower()
        before = column.before.lower() if column.before is not None else None
        if before is not None and before not in there:
            if not column.refills:
                raise _lacking(shard, column)
            before = None
        if before is not None and before != name:
            if before in others or name in others:
                raise _renamed(shard, column)
            found[before] = EvolvedColumn(column.field, there[before].name)
        elif name in there:
            if name in leaving:
                raise _again(shard, column, "has the former name of another column")
            old = there[name]
            kind = _kind(column)
            if name in others:
                kind = _widened(shard, column, old.dataType)
            found[name] = EvolvedColumn(_arrow(old.name, kind), old.name)
            if before is None and (column.default is not None or name in own):
                if column.default is not None and kind != old.dataType:
                    raise _again(shard, column, "was added with a default, in another type than before")
                result.values[old.name] = _constant(column.default, old.dataType)
        elif column.default is not None:
            result.added.append(StructField(column.field.name, _kind(column)))
            result.values[column.field.name] = _constant(column.default, _kind(column))
            found[name] = EvolvedColumn(column.field, column.field.name)
        else:
            found[name] = EvolvedColumn(column.field, None)
    for name, old in there.items():
        if name not in found and name in others:
            found[name] = EvolvedColumn(_arrow(old.name, old.dataType), old.name)
            if name in own:
                result.values[old.name] = "NULL"
    order = [*there, *[name for name in found if name not in there]]
    result.columns = [found[name] for name in order if name in found]
    return result


def agree_on_key(shard: TableId, key: Sequence[str], claims: Mapping[TableId, Claim]) -> None:
    """Raises `TableError` if the key of another shard has other columns."""
    for table, claim in sorted(claims.items()):
        if table != shard and not same_key(claim.key, key):
            raise other_key(shard, key, table, claim.key)


def _kind(column: EvolvedColumn) -> DataType:
    return spark_type(column.field)


def _arrow(name: str, kind: DataType) -> pa.Field:
    return pa.field(name, to_arrow_type(kind))


def _constant(expression: str | None, kind: DataType) -> str:
    return "NULL" if expression is None else f"CAST({expression} AS {kind.simpleString()})"


def _widened(shard: TableId, column: EvolvedColumn, present: DataType) -> DataType:
    wide = common_type(present, _kind(column))
    if wide is not None:
        return wide
    raise TableError(
        f"The column {column.field.name} of {shard} has the type {_kind(column).simpleString()}, but "
        f"{present.simpleString()} in the target that it shares: no type holds both exactly.",
        hint="Give the column related types in all shards, then run "
        f"`penstock resnapshot FILE {argument(shard)}`. Or leave the table out of `merge_shards`. "
        "If all shards have the new type by now, stop the pipeline, drop the target, and `resnapshot` all "
        "its shards.",
        table=str(shard),
    )


def _lacking(shard: TableId, column: EvolvedColumn) -> TableError:
    return TableError(
        f"The target of {shard} has no column {column.before}, which {column.field.name} comes from.",
        hint=f"Run `penstock resnapshot FILE {argument(shard)}`.",
        table=str(shard),
    )


def _renamed(shard: TableId, column: EvolvedColumn) -> TableError:
    return _again(shard, column, f"was {column.before} before, and other shards have one of the two")


def _again(shard: TableId, column: EvolvedColumn, why: str) -> TableError:
    return TableError(
        f"The column {column.field.name} of {shard} {why}.",
        hint=f"Run `penstock resnapshot FILE {argument(shard)}`.",
        table=str(shard),
        read_again=True,
    )
