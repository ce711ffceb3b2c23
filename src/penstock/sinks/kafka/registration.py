"""Registers the sink `kafka`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.model.shards import Shards
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kind import Probe, SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _check_installed() -> None:
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError(
            "The sink kafka needs the package confluent-kafka, which is not installed.",
            hint="pip install 'penstock[kafka]'",
        )


def _open(options: KafkaOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    _check_installed()
    from penstock.sinks.kafka.sink import KafkaSink

    return KafkaSink(options, pipeline)


def _probe(options: KafkaOptions, conf: Mapping[str, str]) -> Probe:
    _check_installed()
    from penstock.sinks.kafka.probe import probe

    return probe(options)


KAFKA = SinkKind(
    name="kafka",
    options=KafkaOptions,
    open=_open,
    example=lambda folder: KafkaOptions(type="kafka", bootstrap="127.0.0.1:9092"),
    example_needs_server=True,
    keeps_tables=False,
    takes_messages=True,
    probes_without_spark=True,
    probe=_probe,
)
