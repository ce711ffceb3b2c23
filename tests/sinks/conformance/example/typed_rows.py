"""Rows of targets that store texts, as values of their columns' types."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FractionalType,
    StructType,
    TimestampNTZType,
    TimestampType,
)


def frame_of(spark: SparkSession, rows: Iterable[Sequence[Any]], columns: StructType) -> DataFrame:
    made = [
        tuple(_typed(value, field.dataType) for value, field in zip(row, columns, strict=True))
        for row in rows
    ]
    return spark.createDataFrame(made, columns, verifySchema=False)


def _typed(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_typed(one, kind.elementType) for one in value]
    if isinstance(kind, DateType) and isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(kind, BinaryType) and isinstance(value, str):
        return b64decode(value)
    if isinstance(kind, DecimalType):
        return Decimal(value)
    if isinstance(kind, FractionalType):
        return float(value)
    if isinstance(kind, TimestampNTZType) and isinstance(value, str):
        return datetime.fromisoformat(value)
    if isinstance(kind, TimestampType) and isinstance(value, str):
        return datetime.fromisoformat(value.removesuffix("Z")).replace(tzinfo=timezone.utc)
    if isinstance(kind, BooleanType):
        return str(value).lower() in ("1", "true")
    return value
