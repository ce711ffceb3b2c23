"""Registers the sink `nats`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.nats.options import NatsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _open(options: NatsOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.nats.sink import NatsSink

    return NatsSink(options, pipeline)


def _probe(options: NatsOptions, conf: Mapping[str, str]) -> Probe:
    from penstock.sinks.nats.probe import probe

    return probe(options)


def _example(folder: Path) -> NatsOptions:
    section: dict[str, Any] = {"type": "nats", "url": "nats://127.0.0.1:4222"}
    return NatsOptions.model_validate(section)


NATS = SinkKind(
    name="nats",
    options=NatsOptions,
    open=_open,
    example=_example,
    example_needs_server=True,
    keeps_tables=False,
    takes_messages=True,
    probes_without_spark=True,
    probe=_probe,
)
