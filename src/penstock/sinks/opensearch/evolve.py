"""Documents with the columns that a changed definition gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DecimalType, StructType

from penstock.sinks.documents import evolved
from penstock.sinks.evolve import Change
from penstock.sinks.opensearch.values import mapped, of_columns, of_fields
from penstock.sinks.spark_sql import holds


def evolved_documents(
    documents: Sequence[Mapping[str, Any]],
    changed: Sequence[Change],
    present: StructType,
    spark: SparkSession,
) -> list[dict[str, Any]]:
    rows = [of_columns(one, present.names) for one in documents]
    return [of_fields(one) for one in evolved(rows, changed, present, spark, iso=True)]


def widens(old: DataType, kind: DataType) -> bool:
    """Whether values and their mapping are the same in the wider type."""
    if isinstance(kind, DecimalType) and (not isinstance(old, DecimalType) or old.scale != kind.scale):
        return False  # a decimal is a text, with as many digits as its type has
    return holds(kind, old) and mapped(old) == mapped(kind)
