"""Registers the sink `clickhouse`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.kind import Probe, SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _open(options: ClickHouseOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.clickhouse.sink import ClickHouseSink

    return ClickHouseSink(options, spark, pipeline)


def _probe(options: ClickHouseOptions, conf: Mapping[str, str]) -> Probe:
    from penstock.sinks.clickhouse.probe import probe

    return probe(options)


CLICKHOUSE = SinkKind(
    name="clickhouse",
    options=ClickHouseOptions,
    open=_open,
    example=lambda folder: ClickHouseOptions(type="clickhouse", url="http://127.0.0.1:8123"),
    example_needs_server=True,
    keeps_tables=True,
    probes_without_spark=True,
    probe=_probe,
)
