"""Takes over Iceberg tables that others made, with their rows (`adopt` in `sink.tables`).

One transaction makes a table ours: it sets the owner, adds the column `_sequence`, which is NULL in all rows
that are there, and relaxes NOT NULL. Rows with NULL in `_sequence` are older than every change. So the
snapshot that follows replaces each of them by key, and deletes at its end those whose keys the source does
not have, as after any resnapshot.

A `_sequence` that another pipeline has left counts in the offsets of another relay log. So it is replaced by
a new column, and all properties of that pipeline are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.model.change import SEQUENCE
from penstock.sinks.lake.format import Fits
from penstock.sinks.lake.iceberg.files import Classes, decimal_parts, list_element, schema_fields
from penstock.sinks.lake.iceberg.identifiers import identifiable
from penstock.sinks.names import TEMPORARY
from penstock.sinks.spark_sessions import java_map
from penstock.sinks.spark_sql import quoted

_TYPES: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampNTZType(),
    "timestamptz": TimestampType(),
    "string": StringType(),
    "binary": BinaryType(),
}
"""The types that a target can have, except decimals and lists."""
_OURS = "penstock."


def differences(
    classes: Classes, target: Any, wanted: StructType, key: Sequence[str], fits: Fits
) -> list[str]:
    """Why a table's definition does not fit. `wanted`: the columns of a new target, in the types of the
    format. `key`: of the source table."""
    found = []
    if (version := classes.format_version(target)) < 2:
        found.append(f"its format version is {version}, and deletes need version 2 or 3")
    columns = [one for one in schema_fields(classes, target) if not _is_ours(one["name"])]
    present = {one["name"].lower(): one for one in columns}
    names = {field.name.lower() for field in wanted}
    for field in wanted:
        column = present.get(field.name.lower())
        if field.name == SEQUENCE:
            continue
        if column is None:
            found.append(f"it has no column {field.name}")
            continue
        kind = _type(column["type"])
        if kind is None or not fits(kind, field.dataType):
            has, needs = _text(column["type"], kind), field.dataType.simpleString()
            found.append(f"its column {column['name']} is of type {has}, and {needs} is needed")
    extra = [one["name"] for one in columns if one["name"].lower() not in names]
    found += [f"its column {name} is not in the source" for name in extra]
    identifiers = {name.lower() for name in classes.identifiers(target)}
    if identifiers and identifiers != {name.lower() for name in key}:
        found.append(
            f"its identifier fields are ({', '.join(sorted(identifiers))}), and the key of the source is "
            f"({', '.join(key)})"
        )
    return found


def repeated_keys(spark: SparkSession, name: str, key: Iterable[str]) -> bool:
    """Whether two rows have the same key. `name`: the table's in Spark SQL."""
    columns = ", ".join(map(quoted, key))
    query = f"SELECT 1 FROM {name} GROUP BY {columns} HAVING count(*) > 1 LIMIT 1"
    return bool(spark.sql(query).collect())


def adopt(
    spark: SparkSession, classes: Classes, target: Any, kept: Iterable[str], properties: Mapping[str, str]
) -> None:
    """Makes a table that fits ours. `kept`: columns that stay NOT NULL, if they are identifier fields."""
    transaction = target.newTransaction()
    update = transaction.updateProperties()
    for name in java_map(spark, target.properties()):
        if name.startswith(_OURS) and name not in properties:
            update.remove(name)
    for name, value in properties.items():
        update.set(name, value)
    update.commit()
    _columns(classes, transaction, target, {name.lower() for name in kept})
    transaction.commitTransaction()


def _columns(classes: Classes, transaction: Any, target: Any, kept: set[str]) -> None:
    fields = schema_fields(classes, target)
    identifiers = {name.lower() for name in classes.identifiers(target)}
    kinds = {field["name"].lower(): kind for field in fields if (kind := _type(field["type"])) is not None}
    stays = set(identifiable(kinds, sorted(identifiers))) if identifiers <= kept else set()
    update = transaction.updateSchema()
    if identifiers and not stays:
        update.setIdentifierFields(classes.list_of([]))
    if any(field["name"] == SEQUENCE for field in fields):
        update.deleteColumn(SEQUENCE)
    for field in fields:
        if field["required"] and field["name"].lower() not in stays and field["name"] != SEQUENCE:
            update.makeColumnOptional(field["name"])
    update.addColumn(SEQUENCE, classes.long_type)
    update.commit()


def _is_ours(name: str) -> bool:
    return name == SEQUENCE or name.startswith(TEMPORARY)


def _type(described: Any) -> DataType | None:
    """Spark's type for one of Iceberg's. None: no target has such a column."""
    if (element := list_element(described)) is not None:
        of = _type(element)
        return None if of is None else ArrayType(of)
    if not isinstance(described, str):
        return None
    parts = decimal_parts(described)
    return _TYPES.get(described) if parts is None else DecimalType(*parts)


def _text(described: Any, kind: DataType | None) -> str:
    if kind is not None:
        return kind.simpleString()
    return described if isinstance(described, str) else str(described["type"])
