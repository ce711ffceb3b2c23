"""The sink `delta`: its options, and what Spark needs for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.model.shards import Shards
from penstock.sinks.kind import Directory, NamespaceOptions, SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


class DeltaOptions(NamespaceOptions):
    """Delta tables. Each target equals its source table."""

    type: Literal["delta"]
    """Name of the sink."""
    path: Directory
    """Directory of the tables."""

    @property
    def directory(self) -> Path | None:
        return self.path


def _spark_options(options: DeltaOptions, conf: Mapping[str, str], state: Path) -> dict[str, str]:
    from penstock.sinks.lake.delta.checksum import FILES_MAX

    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.allFilesInCrc.thresholdNumFiles": str(FILES_MAX),
        # In other time zones, Delta compares the files in a checksum with the whole log at each commit.
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        # Reading one of our frames twice gives equal rows, so Delta need not copy it first.
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    }


def _open(options: DeltaOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.lake.delta.format import DeltaFormat
    from penstock.sinks.lake.shards import with_shards
    from penstock.sinks.lake.sink import LakeSink

    lake = LakeSink(DeltaFormat(options, spark, pipeline), pipeline, shards.columns)
    return with_shards(lake, shards, spark)


DELTA = SinkKind(
    name="delta",
    options=DeltaOptions,
    open=_open,
    example=lambda folder: DeltaOptions(type="delta", path=folder),
    keeps_tables=True,
    merges_shards=True,
    # Delta's other dependencies are in PySpark already, some of them in other versions.
    jars=(
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "io.delta:delta-kernel-api:4.4.0",
        "io.delta:delta-kernel-defaults:4.4.0",
        "io.delta:delta-kernel-unitycatalog:4.4.0",
        "io.unitycatalog:unitycatalog-client:0.6.0",
    ),
    spark_options=_spark_options,
)
