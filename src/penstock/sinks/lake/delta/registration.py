"""Registers the sink `delta`, with what Spark needs for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, Probed, SinkKind
from penstock.sinks.lake.delta.location import S3_JARS, is_s3, log_store_jar, spark_options
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.index.place import index_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink
    from penstock.sinks.lake.delta.format import DeltaFormat


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
        **spark_options(options.path, options.store),
        **index_option(state),
    }


def _jars_for(options: DeltaOptions) -> tuple[str, ...]:
    return S3_JARS if is_s3(options.path) else ()


def _own_jars(options: DeltaOptions) -> tuple[Path, ...]:
    jar = log_store_jar(options.path)
    return () if jar is None else (jar,)


def _open(options: DeltaOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.lake.delta.local import LocalDelta
    from penstock.sinks.lake.delta.stored import StoredDelta
    from penstock.sinks.lake.shards import with_shards
    from penstock.sinks.lake.sink import LakeSink

    place = options.path
    kind: DeltaFormat
    if isinstance(place, Path):
        kind = LocalDelta(options, place, spark, pipeline)
    else:
        kind = StoredDelta(options, place, spark, pipeline)
    lake = LakeSink(kind, pipeline, shards.columns)
    return with_shards(lake, shards, spark)


def _load_classes(options: DeltaOptions, spark: SparkSession) -> None:
    if is_s3(options.path):
        from penstock.sinks.lake.delta.class_loading import load_classes

        load_classes(spark)


def _probe(options: DeltaOptions, conf: Mapping[str, str]) -> Probe | None:
    """The probe of the sink. None: a directory needs none."""
    if options.directory is not None:
        return None

    def run(spark: SparkSession, databases: Sequence[str]) -> Iterator[Probed]:
        from penstock.sinks.lake.delta.probe import probe

        return probe(options, spark)

    return run


DELTA = SinkKind(
    name="delta",
    options=DeltaOptions,
    open=_open,
    example=lambda folder: DeltaOptions(type="delta", path=folder),
    keeps_tables=True,
    merges_shards=True,
    keeps_history=True,
    # Delta's other dependencies are in PySpark already, some of them in other versions.
    jars=(
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "io.delta:delta-kernel-api:4.4.0",
        "io.delta:delta-kernel-defaults:4.4.0",
        "io.delta:delta-kernel-unitycatalog:4.4.0",
        "io.unitycatalog:unitycatalog-client:0.6.0",
    ),
    jars_for=_jars_for,
    own_jars=_own_jars,
    spark_options=_spark_options,
    load_classes=_load_classes,
    probe=_probe,
)
