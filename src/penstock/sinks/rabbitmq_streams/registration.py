"""Registers the sink `rabbitmq-streams`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.rabbitmq_streams.options import RabbitMqStreamsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _open(options: RabbitMqStreamsOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.rabbitmq_streams.sink import RabbitMqStreamsSink

    return RabbitMqStreamsSink(options, pipeline)


def _probe(options: RabbitMqStreamsOptions, conf: Mapping[str, str]) -> Probe:
    from penstock.sinks.rabbitmq_streams.probe import probe

    return probe(options)


def _example(folder: Path) -> RabbitMqStreamsOptions:
    section: dict[str, Any] = {"type": "rabbitmq-streams", "url": "rabbitmq-stream://127.0.0.1:5552"}
    return RabbitMqStreamsOptions.model_validate(section)


RABBITMQ_STREAMS = SinkKind(
    name="rabbitmq-streams",
    options=RabbitMqStreamsOptions,
    open=_open,
    example=_example,
    example_needs_server=True,
    keeps_tables=False,
    takes_messages=True,
    probes_without_spark=True,
    probe=_probe,
)
