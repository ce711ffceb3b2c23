"""The rows that the sink `clickhouse` has written, for the conformance suite."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, DoubleType, FloatType, IntegralType
from tests.sinks.conformance.example.typed_rows import frame_of

from penstock.model.schema import TableId
from penstock.sinks.clickhouse.client import quoted
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.clickhouse.sink import ClickHouseSink


def written_rows(options: ClickHouseOptions, spark: SparkSession, table: TableId) -> DataFrame:
    sink = ClickHouseSink(options, spark, "")
    record = sink._find(table)
    assert record is not None
    columns = ", ".join(_shown(field) for field in record.columns)
    place = ".".join(map(quoted, sink._place(table)))
    found = sink._client.rows(f"SELECT {columns} FROM {place}")
    sink.close()
    rows = [tuple(_value(*pair) for pair in zip(row, record.columns, strict=True)) for row in found]
    return frame_of(spark, rows, record.columns)


def _shown(field: Any) -> str:
    if isinstance(field.dataType, (FloatType, DoubleType)):
        return f"toString({quoted(field.name)})"  # JSON would have null for what is no number
    return f"hex({quoted(field.name)})" if isinstance(field.dataType, BinaryType) else quoted(field.name)


def _value(value: Any, field: Any) -> Any:
    if value is None:
        return None
    if isinstance(field.dataType, BinaryType):
        return bytes.fromhex(value)
    return int(Decimal(value)) if isinstance(field.dataType, IntegralType) else value
