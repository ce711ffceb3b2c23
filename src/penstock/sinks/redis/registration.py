"""Registers the sink `redis`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.redis.options import RedisOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def check_installed(sink: str) -> None:
    if importlib.util.find_spec("redis") is None:
        raise ConfigError(
            f"The sink {sink} needs the package redis, which is not installed.",
            hint="pip install 'penstock[redis]'",
        )


def _open(options: RedisOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    check_installed("redis")
    from penstock.sinks.redis.sink import RedisSink

    return RedisSink(options, spark, pipeline)


def _probe(options: RedisOptions, conf: Mapping[str, str]) -> Probe:
    check_installed("redis")
    from penstock.sinks.redis.probe import probe

    return probe(options)


def _example(folder: Path) -> RedisOptions:
    return RedisOptions(type="redis", url="redis://127.0.0.1:6379/0")


REDIS = SinkKind(
    name="redis",
    options=RedisOptions,
    open=_open,
    example=_example,
    example_needs_server=True,
    keeps_tables=True,
    probes_without_spark=True,
    probe=_probe,
)
