"""The sink `parquet`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.model.shards import Shards
from penstock.sinks.kind import Directory, NamespaceOptions, SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


class ParquetOptions(NamespaceOptions):
    """A change log in Parquet files: every change is a row."""

    type: Literal["parquet"]
    """Name of the sink."""
    path: Directory
    """Directory of the change log."""
    before_images: bool = True
    """Write the row before an update as `update_preimage`."""

    @property
    def directory(self) -> Path | None:
        return self.path


def _open(options: ParquetOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.changelog.sink import ParquetSink

    return ParquetSink(options, spark, pipeline)


PARQUET = SinkKind(
    name="parquet",
    options=ParquetOptions,
    open=_open,
    example=lambda folder: ParquetOptions(type="parquet", path=folder),
    keeps_tables=False,
)
