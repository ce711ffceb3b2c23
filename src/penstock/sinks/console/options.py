"""The options of the sink `console`."""

from __future__ import annotations

from typing import Literal

from penstock.model.schema import TableId
from penstock.sinks.kind import SinkOptions


class ConsoleOptions(SinkOptions):
    """Changes as JSON lines on standard output, to try things out."""

    type: Literal["console"]
    """Name of the sink."""
    before_images: bool = True
    """Write the row before an update as `update_preimage`."""

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return None  # each line names its table
