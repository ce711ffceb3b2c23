"""The table that a change log makes, by Spark alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.testing.oracle import OracleColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def newest_rows(log: DataFrame, columns: Sequence[OracleColumn]) -> DataFrame:
    """The last row image of each key, unless the row was deleted."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = [column.name for column in columns if column.key_part is not None]
    order = Window.partitionBy(*key).orderBy(
        f.col("_sequence").desc(), f.when(f.col("_change_type") == "update_preimage", 1).otherwise(0)
    )
    newest = log.withColumn("_n", f.row_number().over(order)).where("_n = 1")
    alive = newest.where(~f.col("_change_type").isin("delete", "update_preimage"))
    return alive.select(*[column.name for column in columns])
