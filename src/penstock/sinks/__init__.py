"""Sinks: where changes become durable. `build_sink` is the one way in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.config import SinkConfig
from penstock.model.shards import ShardRule, Shards
from penstock.sinks.base import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.lake.shards import Lake


def build_sink(
    config: SinkConfig, spark: SparkSession, pipeline: str, merge_shards: Iterable[ShardRule] = ()
) -> Sink:
    """The sink of a pipeline (`pipeline` is its uuid), on a session from `spark.session.build_session`."""
    shards = Shards(merge_shards)
    merged = {rule.target: rule.shard_column for rule in shards.rules}
    lake: Lake
    match config.type:
        case "iceberg":
            from penstock.sinks.lake.iceberg.sink import IcebergSink
            from penstock.sinks.lake.shards import ShardedSink

            lake = IcebergSink(config, spark, pipeline, merged)
            return ShardedSink(lake, shards, spark) if shards else lake
        case "delta":
            from penstock.sinks.lake.delta.sink import DeltaSink
            from penstock.sinks.lake.shards import ShardedSink

            lake = DeltaSink(config, spark, pipeline, merged)
            return ShardedSink(lake, shards, spark) if shards else lake
        case "parquet":
            from penstock.sinks.changelog.sink import ParquetSink

            return ParquetSink(config, spark, pipeline)
        case "console":
            from penstock.sinks.console.sink import ConsoleSink

            return ConsoleSink(config, spark, pipeline)
