"""A target whose columns are wider than those of its source is compared without taking lost digits for
equality."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.model.buckets import HashBuckets
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
from penstock.spark.verify import SparkTarget
from penstock.verify.check import Compared

T = TableId("shop", "t")


def hashes(spark: SparkSession, column: Column, ddl: str, value: Any) -> tuple[dict[Any, Any], list[int]]:
    """The sums and the rows of a target with one row."""
    schema = TableSchema(T, (Column("id", "int"), column), ("id",))
    frame = spark.createDataFrame([(1, value)], f"id int, v {ddl}")
    target, buckets = SparkTarget(lambda table, version: frame), HashBuckets(schema.key_columns, 1)
    sums = target.sums([Compared(schema, buckets, None)], DEFAULT_TYPES)[T]
    assert isinstance(sums, dict)
    rows = target.rows(schema, buckets, [0], None, DEFAULT_TYPES)
    return sums, [found for _, found in rows]


PRICE = Column("v", "decimal", precision=10, scale=2, column_type="decimal(10,2)")
COUNT = Column("v", "int", column_type="int")


@pytest.mark.parametrize(
    ("column", "wider", "same", "other"),
    [
        (PRICE, "decimal(12,4)", Decimal("1.2300"), Decimal("1.2345")),
        (COUNT, "bigint", 7, None),
        (COUNT, "double", 7.0, 7.4),
    ],
)
def test_a_value_that_does_not_fit_the_sources_type_is_a_difference(
    spark: SparkSession, column: Column, wider: str, same: Any, other: Any
) -> None:
    narrow = "decimal(10,2)" if column is PRICE else "int"
    fitting = Decimal("1.23") if column is PRICE else 7
    expected = hashes(spark, column, narrow, fitting)
    assert hashes(spark, column, wider, same) == expected
    if other is not None:
        differs = hashes(spark, column, wider, other)
        assert differs[0] != expected[0] and differs[1] != expected[1]


def test_a_value_beyond_the_sources_type_is_not_taken_for_null(spark: SparkSession) -> None:
    null = hashes(spark, COUNT, "int", None)
    assert hashes(spark, COUNT, "bigint", None) == null
    beyond = hashes(spark, COUNT, "bigint", 1 << 40)
    assert beyond[0] != null[0] and beyond[1] != null[1]
