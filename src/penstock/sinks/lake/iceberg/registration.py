"""The sink `iceberg`: its options, and what Spark needs for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field

from penstock.model.shards import Shards
from penstock.model.units import Milliseconds
from penstock.sinks.kind import NamespaceOptions, SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


class IcebergOptions(NamespaceOptions):
    """Iceberg tables. Each target equals its source table."""

    type: Literal["iceberg"] = "iceberg"
    """Name of the sink."""
    path: Path | None = None
    """Directory of the warehouse."""
    catalog: str = "lake"
    """Name of the Iceberg catalog in Spark. A Hadoop catalog at `path`, unless `spark.conf` configures
    another."""
    equality_deletes: bool = True
    """Small epochs are committed without a Spark job. They leave equality deletes, which are converted
    into deletion vectors in the background. `false`: for readers that do not support equality deletes."""
    fold_commits: int = Field(64, ge=1)
    """Number of small commits to a table after which its equality deletes are converted into deletion
    vectors."""
    maintain_epochs: int = Field(50, ge=1)
    """Number of commits to a table, without small ones, after which old snapshots are expired and small
    files are merged."""
    snapshots_keep: int = Field(20, ge=1)
    """Minimum number of snapshots that are kept, so that readers can go back."""
    snapshots_age: Milliseconds = 3_600_000
    """Snapshots younger than this are kept, too."""
    snapshots_max: int = Field(500, ge=1)
    """Maximum number of snapshots, whatever their age: every commit rewrites the list of them."""
    files_age: Milliseconds = 900_000
    """How long files are kept that no snapshot uses any more, for queries that still read them."""

    @property
    def directory(self) -> Path | None:
        return self.path

    @property
    def spark_catalog(self) -> str | None:
        return self.catalog


def _spark_options(options: IcebergOptions, conf: Mapping[str, str], state: Path) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{options.catalog}"
    found = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # Each session has its own catalog object, whose cache would miss commits of other sessions.
        f"{prefix}.cache-enabled": "false",
    }
    if prefix not in conf:
        warehouse = options.path or state / "warehouse"
        found |= {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "hadoop",
            f"{prefix}.warehouse": warehouse.absolute().as_uri()
            if _looks_like_a_url(warehouse)
            else str(warehouse.absolute()),
        }
    return found


def _looks_like_a_url(path: Path) -> bool:
    return bool(urlsplit(str(path)).scheme)


def _open(options: IcebergOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.lake.iceberg.format import IcebergFormat
    from penstock.sinks.lake.shards import with_shards
    from penstock.sinks.lake.sink import LakeSink

    lake = LakeSink(IcebergFormat(options, spark, pipeline), pipeline, shards.columns)
    return with_shards(lake, shards, spark)


ICEBERG = SinkKind(
    name="iceberg",
    options=IcebergOptions,
    open=_open,
    example=lambda folder: IcebergOptions(path=folder),
    keeps_tables=True,
    merges_shards=True,
    jars=("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
    spark_options=_spark_options,
)
