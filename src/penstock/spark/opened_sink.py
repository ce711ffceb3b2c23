"""Opens the sink of a pipeline as its file describes it: with shards, with history, and with transforms in
front of it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.config import PipelineConfig
from penstock.model.history import History
from penstock.model.transforms import Transforms
from penstock.sinks import registry
from penstock.sinks.base import LogSink, Sink, lasting
from penstock.sinks.lake.history import HistorySink
from penstock.sinks.lake.sink import LakeSink
from penstock.spark.dimensions import FOLDER as COPIES
from penstock.spark.dimensions import Dimensions
from penstock.spark.transformed_log import TransformedLog
from penstock.spark.transformed_sink import transformed
from penstock.spark.views import Views
from penstock.state import StateStore
from penstock.state.dead_letters import FOLDER
from penstock.store.folder import StoreFolder


def open_sink(
    config: PipelineConfig, spark: SparkSession, pipeline: str, scratch: StoreFolder | None = None
) -> Sink:
    """See `sinks.registry.open_sink`. `pipeline`: the uuid of its state. `scratch`: see `TransformedSink`."""
    sink = registry.open_sink(config.sink, spark, pipeline, config.merge_shards)
    own = config.own_tables
    transforms = Transforms(config.transforms)
    if config.history:
        assert isinstance(sink, LakeSink), "the configuration refuses other sinks"
        sink = HistorySink(sink, History(config.history, own))
    if transforms and isinstance(sink, LogSink):
        return TransformedLog(
            sink, transforms, spark, config.transform_key, letters=config.state / FOLDER, untouched=own
        )
    return transformed(
        sink, transforms, spark, config.transform_key,
        letters=config.state / FOLDER, scratch=scratch, untouched=own,
    )  # fmt: skip


def open_views(config: PipelineConfig, spark: SparkSession, sink: Sink, state: StateStore) -> Views | None:
    """The views of a pipeline. None: it has none."""
    if not config.views:
        return None
    lake = registry.open_sink(config.sink, spark, state.uuid)
    assert isinstance(lake, LakeSink), "the configuration refuses other sinks"
    lake.begin(state.generation)
    dimensions = Dimensions(spark, state, config.dimensions, config.state / COPIES)
    return Views(spark, lasting(sink), lake, state, config.views, dimensions)
