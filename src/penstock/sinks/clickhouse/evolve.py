"""How a changed definition computes its columns, as SQL."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from penstock.model.change import DELETED, SEQUENCE
from penstock.sinks.clickhouse.client import quoted
from penstock.sinks.clickhouse.types import DATES, Types
from penstock.sinks.evolve import Change
from penstock.sinks.spark_sql import constant, holds


def widens(old: DataType, kind: DataType) -> bool:
    return holds(kind, old)


def only_adds(present: StructType, changed: Sequence[Change]) -> bool:
    """Whether the change only adds columns, so that existing rows stay as they are."""
    kept = {one.before for one in changed if one.before == one.name and one.how == "keep"}
    added = [one for one in changed if one.how == "add" and one.default is None and not one.key]
    return set(present.names) == kept and len(kept) + len(added) == len(changed)


def evolved_columns(
    types: Types, changed: Sequence[Change], key: Sequence[str], present: StructType, spark: SparkSession
) -> list[str]:
    """The columns of a SELECT over the present versions: the new value of each column, then those that each
    version has."""
    values = [_value(types, one, present, spark, key=one.name in key) for one in changed]
    return [*values, quoted(SEQUENCE), quoted(DELETED)]


def _value(types: Types, change: Change, present: StructType, spark: SparkSession, *, key: bool) -> str:
    if change.before is None:
        value = types.literal(constant(spark, change.default, change.kind), change.kind)
    elif change.how == "convert":
        value = types.converted(quoted(change.before), present[change.before].dataType, change.kind)
    else:
        value = quoted(change.before)
    value = f"CAST({value} AS {types.nullable(change.kind)})"
    if key and not isinstance(change.kind, DATES):  # what cannot be converted has no place in a key
        return f"assumeNotNull({value})"
    return value
