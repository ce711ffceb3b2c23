"""The sink `iceberg`: its options, and what Spark needs for it: options of the session, and jars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.model.units import Bytes, Milliseconds
from penstock.sinks.kind import Directory, NamespaceOptions, Probe, Probed, SinkKind
from penstock.sinks.lake.iceberg.catalog_options import (
    CatalogOptions,
    CatalogSection,
    HadoopCatalog,
    HiveCatalog,
    JdbcCatalog,
    Storage,
    storage_of,
)
from penstock.sinks.lake.iceberg.table_options import TableShape
from penstock.sinks.lake.index.place import KEY_INDEX_MEMORY, index_option
from penstock.sinks.names import catalog_name, target_names

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


class IcebergOptions(NamespaceOptions):
    """Iceberg tables. Each target equals its source table."""

    type: Literal["iceberg"] = "iceberg"
    """Name of the sink."""
    path: Directory | None = None
    """Directory of the warehouse, without a section `catalog`."""
    catalog: CatalogSection = "lake"
    """The Iceberg catalog that has the tables: a section (below), or the name of a catalog in Spark. A
    name is a Hadoop catalog at `path`, unless `spark.conf` configures another."""
    key_index: bool = True
    """Small epochs are committed without a Spark job. They find the rows that they replace in an index of
    the table's keys, in the state directory: 15 bytes for each row of the table. `false`: small epochs are
    merged like larger ones."""
    key_index_memory: Bytes = Field(KEY_INDEX_MEMORY, ge=1024**2)
    """Memory that the driver takes to build the key index of a table. What does not fit is sorted on the
    disk."""
    fold_commits: int = Field(64, ge=1)
    """Number of small commits to a table after which its small files are merged."""
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
    tables: tuple[TableShape, ...] = ()
    """How targets are laid out, branched and adopted, by the names of their tables."""

    @model_validator(mode="after")
    def _has_one_warehouse(self) -> IcebergOptions:
        if self.path is not None and isinstance(self.catalog, CatalogOptions):
            raise ValueError(
                "`path` is the warehouse of a catalog without a section; leave it out, and give "
                "`catalog.warehouse`"
            )
        return self

    @model_validator(mode="after")
    def _can_choose_locations(self) -> IcebergOptions:
        fixed = self.path is not None or isinstance(self.catalog, HadoopCatalog)
        if fixed and any(one.location is not None for one in self.tables):
            raise ValueError(
                "a hadoop catalog has each table in the warehouse; leave out `location` in `tables`, or use "
                "a catalog of another type"
            )
        return self

    def shape(self, table: TableId) -> TableShape | None:
        """How a new target of the table is laid out. None: as Penstock does by itself."""
        return next((one for one in self.tables if one.matches(table)), None)

    def branch(self, table: TableId) -> str | None:
        """The branch to which the table's target is written. None: main."""
        shape = self.shape(table)
        return None if shape is None or shape.branch == "main" else shape.branch

    @property
    def directory(self) -> Path | None:
        if isinstance(self.catalog, CatalogOptions):
            return self.catalog.directory
        return self.path

    @property
    def adopts(self) -> bool:
        return any(one.adopt for one in self.tables)

    @property
    def catalog_name(self) -> str:
        """Name of the catalog in Spark."""
        return self.catalog if isinstance(self.catalog, str) else self.catalog.name

    def levels(self, table: TableId) -> list[str]:
        """The levels of the target's namespace in the catalog, and its name."""
        return [catalog_name(level) for level in target_names(self.namespace, table)]

    @property
    def connects_late(self) -> bool:
        """Iceberg connects to the catalog only when it needs it, and not when it sets it up."""
        return isinstance(self.catalog, HiveCatalog)

    @property
    def spark_catalog(self) -> str | None:
        return self.catalog_name


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
