"""Names, values and types in Spark SQL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import InternalError
from penstock.model.change import SEQUENCE
from penstock.sinks.names import source_columns

INTEGER_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
"""Decimal digits that hold every value of the type."""


def quoted(name: str) -> str:
    """A name as an identifier of Spark SQL. It may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A text as a string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def has(column: str, value: str) -> str:
    """The condition that a column equals a text."""
    return f"{quoted(column)} = {text(value)}"


def spark_type(field: pa.Field) -> DataType:
    """Spark's type for a field's Arrow type."""
    try:
        return from_arrow_type(field.type, prefer_timestamp_ntz=True)
    except Exception as error:
        raise InternalError(f"Column {field.name}: Spark has no type for Arrow's {field.type}.") from error


def column_definitions(struct: StructType) -> str:
    """The column list of a CREATE TABLE."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in struct.fields)


def table_properties(properties: dict[str, str]) -> str:
    """The TBLPROPERTIES clause."""
    return (
        f"TBLPROPERTIES ({', '.join(f'{text(name)} = {text(value)}' for name, value in properties.items())})"
    )


def constant(spark: SparkSession, expression: str | None, kind: DataType) -> Any:
    """Lets Spark compute the value of a column's default. Dates and timestamps are returned as text, in
    UTC."""
    if expression is None:
        return None
    text_ = f"CAST({expression} AS {kind.simpleString()})"
    if isinstance(kind, (DateType, TimestampType, TimestampNTZType)):
        text_ = f"CAST({text_} AS STRING)"
    return spark.sql(f"SELECT {text_}").collect()[0][0]


def literal_form(value: Any, kind: DataType) -> Any:
    """A value that `constant` returned, in the form that Iceberg's `Literal.to` accepts."""
    if isinstance(kind, TimestampType):
        return value.replace(" ", "T") + "+00:00"
    if isinstance(kind, TimestampNTZType):
        return value.replace(" ", "T")
    if isinstance(kind, DecimalType):
        return str(value)
    if isinstance(kind, BinaryType):
        return bytes(value)
    return str(value) if isinstance(kind, DateType) else value


def holds(wide: DataType, kind: DataType) -> bool:
    """Whether type `wide` can hold every value of type `kind`. False also if the types are not related."""
    if type(wide) in INTEGER_DIGITS and type(kind) in INTEGER_DIGITS:
        return INTEGER_DIGITS[type(wide)] >= INTEGER_DIGITS[type(kind)]
    if isinstance(wide, DecimalType):
        if isinstance(kind, DecimalType):
            return wide.scale >= kind.scale and wide.precision - wide.scale >= kind.precision - kind.scale
        return type(kind) in INTEGER_DIGITS and wide.precision - wide.scale >= INTEGER_DIGITS[type(kind)]
    return isinstance(wide, DoubleType) and isinstance(kind, FloatType)


def target_type(arrow: pa.Schema) -> StructType:
    """The columns of a new target: the source's, all nullable, then `_sequence`."""
    names = source_columns(arrow.names)
    fields = [StructField(name, spark_type(arrow.field(name))) for name in names]
    return StructType([*fields, StructField(SEQUENCE, LongType())])
