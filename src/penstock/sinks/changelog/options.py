"""The options of the sink `parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from penstock.sinks.kind import Directory, NamespaceOptions


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
