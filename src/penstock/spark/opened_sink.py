"""Opens the sink of a pipeline as its file describes it: with shards, and with transforms in front of it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.config import PipelineConfig
from penstock.model.transforms import Transforms
from penstock.sinks import registry
from penstock.sinks.base import Sink
from penstock.spark.dead_letters import FOLDER
from penstock.spark.transformed_sink import transformed


def open_sink(config: PipelineConfig, spark: SparkSession, pipeline: str) -> Sink:
    """See `sinks.registry.open_sink`. `pipeline`: the uuid of its state."""
    sink = registry.open_sink(config.sink, spark, pipeline, config.merge_shards)
    return transformed(
        sink,
        Transforms(config.transforms),
        spark,
        config.transform_key,
        letters=config.state / FOLDER,
        untouched=[] if config.history_table is None else [config.history_table],
    )
