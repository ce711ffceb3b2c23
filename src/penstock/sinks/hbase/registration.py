"""Registers the sink `hbase`, with the jars of HBase's client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.kind import Probe, SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink

FRAMES = "penstock.hbase.RowFrames"
FRAMES_JAR = Path(__file__).with_name("row_frames.jar")
_VERSION = "2.6.3-hadoop3"
_THIRD_PARTY = "4.1.11"
_JARS = (
    *(
        f"org.apache.hbase:hbase-{name}:{_VERSION}"
        for name in (
            "client",
            "common",
            "hadoop-compat",
            "hadoop2-compat",
            "logging",
            "metrics",
            "metrics-api",
            "protocol",
            "protocol-shaded",
        )
    ),
    *(
        f"org.apache.hbase.thirdparty:hbase-{name}:{_THIRD_PARTY}"
        for name in ("shaded-gson", "shaded-miscellaneous", "shaded-netty", "shaded-protobuf", "unsafe")
    ),
    "io.opentelemetry:opentelemetry-api:1.49.0",
    "io.opentelemetry:opentelemetry-context:1.49.0",
    "io.opentelemetry.semconv:opentelemetry-semconv:1.29.0-alpha",
    "com.google.protobuf:protobuf-java:2.5.0",
)
"""The client's jars that Spark does not have. Spark has Hadoop, ZooKeeper and the rest."""


def _open(options: HBaseOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.hbase.sink import HBaseSink

    return HBaseSink(options, spark, pipeline)


def _probe(options: HBaseOptions, conf: Mapping[str, str]) -> Probe:
    from penstock.sinks.hbase.probe import probe

    return probe(options)


HBASE = SinkKind(
    name="hbase",
    options=HBaseOptions,
    open=_open,
    example=lambda folder: HBaseOptions(type="hbase", quorum="127.0.0.1:2181"),
    example_needs_server=True,
    keeps_tables=True,
    jars=_JARS,
    own_jars=lambda options: (FRAMES_JAR,),
    probe=_probe,
)
