"""The options of the sink `delta`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.model.units import Bytes
from penstock.sinks.kind import NamespaceOptions
from penstock.sinks.lake.delta.location import DeltaPlace, is_s3
from penstock.sinks.lake.delta.table_options import DeltaShape
from penstock.sinks.lake.index.place import KEY_INDEX_MEMORY
from penstock.sinks.names import which_penstock_adds
from penstock.store.section import StoreSection

FILE_METADATA = "_metadata"
"""A column that Spark adds to files. Delta's MERGE needs it, and fails if the table has one, too."""


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

    def reserved(self, column: str) -> str | None:
        if column.lower() == FILE_METADATA:
            return "whose name Spark has for the files of a Delta table"
        return which_penstock_adds(column, [SEQUENCE])
