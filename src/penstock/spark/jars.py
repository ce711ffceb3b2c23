"""Which connector jars a sink needs, in which versions, and how they get onto Spark's class path."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.artifacts.maven import fetch

LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""Hadoop's own local file system starts a process per permission change and writes a checksum file beside
every file; this one does neither, which saves about 100 ms a micro-batch."""

ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
DELTA = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "io.delta:delta-kernel-api:4.4.0",
    "io.delta:delta-kernel-defaults:4.4.0",
    "io.delta:delta-kernel-unitycatalog:4.4.0",
    "io.unitycatalog:unitycatalog-client:0.6.0",
)
"""Named one by one: what else Delta's poms ask for is in PySpark already, partly in other versions."""


def jars(sink_types: Iterable[str]) -> list[Path]:
    """Paths of the jars for these sinks, fetched on first use."""
    coordinates = [LOCAL_FILES]
    for sink_type in sink_types:
        coordinates += {"iceberg": ICEBERG, "delta": DELTA}.get(sink_type, ())
    return [fetch(one)[0] for one in coordinates]
