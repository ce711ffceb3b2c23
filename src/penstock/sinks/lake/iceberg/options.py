"""The options of the sink `iceberg`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.model.units import Bytes, Milliseconds
from penstock.sinks.kind import Directory, NamespaceOptions
from penstock.sinks.lake.iceberg.catalog_options import (
    CatalogOptions,
    CatalogSection,
    GlueCatalog,
    HadoopCatalog,
    HiveCatalog,
)
from penstock.sinks.lake.iceberg.table_options import TableShape
from penstock.sinks.lake.index.place import KEY_INDEX_MEMORY
from penstock.sinks.names import catalog_name, target_names, which_penstock_adds

_METADATA_COLUMNS = frozenset({
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
})  # fmt: skip
"""Names of Iceberg's specification, "Reserved Field IDs". Spark cannot change rows of a table that has such a
column, or show its changes."""


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

    def identity(self, table: TableId) -> tuple[str, ...] | None:
        names = target_names(self.namespace, table)
        return tuple(map(str.lower, names)) if isinstance(self.catalog, HiveCatalog | GlueCatalog) else names

    def reserved(self, column: str) -> str | None:
        if column.lower() in _METADATA_COLUMNS:
            return "whose name Iceberg has for a metadata column"
        return which_penstock_adds(column, [SEQUENCE])

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
