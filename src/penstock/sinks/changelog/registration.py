"""Registers the sink `parquet`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.changelog.options import ParquetOptions
from penstock.sinks.kind import SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _open(options: ParquetOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.changelog.sink import ParquetSink

    return ParquetSink(options, spark, pipeline)


PARQUET = SinkKind(
    name="parquet",
    options=ParquetOptions,
    open=_open,
    example=lambda folder: ParquetOptions(type="parquet", path=folder),
    keeps_tables=False,
)
