"""Registers the sink `opensearch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.opensearch.options import OpenSearchOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _open(options: OpenSearchOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.opensearch.sink import OpenSearchSink

    return OpenSearchSink(options, spark, pipeline)


def _probe(options: OpenSearchOptions, conf: Mapping[str, str]) -> Probe:
    from penstock.sinks.opensearch.probe import probe

    return probe(options)


OPENSEARCH = SinkKind(
    name="opensearch",
    options=OpenSearchOptions,
    open=_open,
    example=lambda folder: OpenSearchOptions(type="opensearch", url="http://127.0.0.1:9200"),
    example_needs_server=True,
    keeps_tables=True,
    probes_without_spark=True,
    probe=_probe,
)
