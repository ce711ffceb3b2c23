"""Registers the sink `iceberg`, with what Spark needs for it: options of the session, and jars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, Probed, SinkKind
from penstock.sinks.lake.iceberg.catalog_options import (
    CatalogOptions,
    JdbcCatalog,
    Storage,
    storage_of,
)
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.index.place import index_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink

_VERSION = "1.12.0"
_BUNDLES: dict[Storage, str] = {"s3": f"org.apache.iceberg:iceberg-aws-bundle:{_VERSION}"}
"""What the FileIO of a store needs. Those for Google Cloud Storage and Azure could not be fetched, and so not
tried and pinned: users add them by `spark.conf`."""
METADATA_CACHE_JAR = Path(__file__).with_name("metadata_cache.jar")
_DRIVERS = {
    "sqlite": "org.xerial:sqlite-jdbc:3.50.3.0",
    "postgresql": "org.postgresql:postgresql:42.7.7",
    "mysql": "com.mysql:mysql-connector-j:9.4.0",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.6",
}
"""The drivers of JDBC catalogs, by the product in the address."""


def _jars_for(options: IcebergOptions) -> tuple[str, ...]:
    catalog = options.catalog
    if isinstance(catalog, str):
        return ()
    bundle = _BUNDLES.get(storage_of(catalog))
    driver = _DRIVERS.get(catalog.database) if isinstance(catalog, JdbcCatalog) else None
    return tuple(jar for jar in (bundle, driver) if jar is not None)


def _own_jars(options: IcebergOptions) -> tuple[Path, ...]:
    catalog = options.catalog
    remembers = not isinstance(catalog, str) and catalog.remembers_metadata
    return (METADATA_CACHE_JAR,) if remembers else ()


def _spark_options(options: IcebergOptions, conf: Mapping[str, str], state: Path) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{options.catalog_name}"
    found = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # Each session has its own catalog object, whose cache would miss commits of other sessions.
        f"{prefix}.cache-enabled": "false",
    }
    if isinstance(options.catalog, CatalogOptions):
        found[prefix] = "org.apache.iceberg.spark.SparkCatalog"
        found |= {f"{prefix}.{name}": value for name, value in options.catalog.iceberg_properties().items()}
    elif prefix not in conf:
        warehouse = options.path or state / "warehouse"
        found |= {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "hadoop",
            f"{prefix}.warehouse": warehouse.absolute().as_uri()
            if _looks_like_a_url(warehouse)
            else str(warehouse.absolute()),
        }
    return {**found, **index_option(state)}


def _looks_like_a_url(path: Path) -> bool:
    return bool(urlsplit(str(path)).scheme)


def _open(options: IcebergOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.lake.iceberg.format import IcebergFormat
    from penstock.sinks.lake.shards import with_shards
    from penstock.sinks.lake.sink import LakeSink

    lake = LakeSink(IcebergFormat(options, spark, pipeline), pipeline, shards.columns)
    return with_shards(lake, shards, spark)


def _load_classes(options: IcebergOptions, spark: SparkSession) -> None:
    from penstock.sinks.lake.iceberg.class_loading import load_classes

    load_classes(options, spark)


def _probe(options: IcebergOptions, conf: Mapping[str, str]) -> Probe | None:
    """A catalog in a local directory needs none."""
    if isinstance(options.catalog, str) and f"spark.sql.catalog.{options.catalog}" not in conf:
        return None

    def run(spark: SparkSession, databases: Sequence[str]) -> Iterator[Probed]:
        from penstock.sinks.lake.iceberg.probe import probe

        return probe(options, spark, databases)

    return run


ICEBERG = SinkKind(
    name="iceberg",
    options=IcebergOptions,
    open=_open,
    example=lambda folder: IcebergOptions(path=folder),
    keeps_tables=True,
    merges_shards=True,
    keeps_history=True,
    jars=(f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{_VERSION}",),
    jars_for=_jars_for,
    own_jars=_own_jars,
    spark_options=_spark_options,
    load_classes=_load_classes,
    probe=_probe,
)
