"""The sink `delta`: its options, and what Spark needs for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.model.units import Bytes
from penstock.sinks.kind import NamespaceOptions, Probe, Probed, SinkKind
from penstock.sinks.lake.delta.location import S3_JARS, DeltaPlace, is_s3, log_store_jar, spark_options
from penstock.sinks.lake.delta.table_options import DeltaShape
from penstock.sinks.lake.index.place import KEY_INDEX_MEMORY, index_option
from penstock.store.section import StoreSection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink
    from penstock.sinks.lake.delta.format import DeltaFormat


class DeltaOptions(NamespaceOptions):
    """Delta tables. Each target equals its source table."""

    type: Literal["delta"]
    """Name of the sink."""
    path: DeltaPlace
    """Where the tables are: a directory, or a URL such as `s3://bucket/path`. For `gs://`, `abfss://` and
    `hdfs://`, Hadoop's file system must be configured in `spark.conf`."""
    store: StoreSection = StoreSection()
    key_index: bool = True
    """Small epochs find the rows that they replace in an index of the table's keys, in the state directory:
    15 bytes for each row of the table. `false`: they read the keys of the table."""
    key_index_memory: Bytes = Field(KEY_INDEX_MEMORY, ge=1024**2)
    """Memory that the driver takes to build the key index of a table. What does not fit is sorted on the
    disk."""
    tables: tuple[DeltaShape, ...] = ()
    """How new targets are laid out, by the names of their tables."""

    @model_validator(mode="after")
    def _has_a_store(self) -> DeltaOptions:
        if self.store != StoreSection() and not is_s3(self.path):
            raise ValueError(
                "`store` is for s3:// paths; leave it out, and configure other stores in `spark.conf`"
            )
        return self

    def shape(self, table: TableId) -> DeltaShape | None:
        """How a new target of the table is laid out. None: without partitions."""
        return next((one for one in self.tables if one.matches(table)), None)

    @property
    def directory(self) -> Path | None:
        return self.path if isinstance(self.path, Path) else None


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
