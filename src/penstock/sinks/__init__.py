"""Sinks: where changes become durable. `build_sink` is the one way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import SinkConfig
from penstock.sinks.base import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_sink(config: SinkConfig, spark: SparkSession, pipeline: str) -> Sink:
    """The sink of a pipeline (`pipeline` is its uuid), on a session from `spark.session.build_session`."""
    match config.type:
        case "iceberg":
            from penstock.sinks.iceberg import IcebergSink

            return IcebergSink(config, spark, pipeline)
        case "delta":
            from penstock.sinks.delta import DeltaSink

            return DeltaSink(config, spark, pipeline)
        case "parquet":
            from penstock.sinks.parquet import ParquetSink

            return ParquetSink(config, spark, pipeline)
        case "console":
            from penstock.sinks.console import ConsoleSink

            return ConsoleSink(config, spark, pipeline)
