"""Registers the sink `redis-streams`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.redis.registration import check_installed
from penstock.sinks.redis_streams.options import RedisStreamsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _open(options: RedisStreamsOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    check_installed("redis-streams")
    from penstock.sinks.redis_streams.sink import RedisStreamsSink

    return RedisStreamsSink(options, pipeline)


def _probe(options: RedisStreamsOptions, conf: Mapping[str, str]) -> Probe:
    check_installed("redis-streams")
    from penstock.sinks.redis_streams.probe import probe

    return probe(options)


REDIS_STREAMS = SinkKind(
    name="redis-streams",
    options=RedisStreamsOptions,
    open=_open,
    example=lambda folder: RedisStreamsOptions(type="redis-streams", url="redis://127.0.0.1:6379/0"),
    example_needs_server=True,
    keeps_tables=False,
    takes_messages=True,
    probes_without_spark=True,
    probe=_probe,
)
