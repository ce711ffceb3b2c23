"""The sink `console`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.sinks.kind import SinkKind, SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


class ConsoleOptions(SinkOptions):
    """Changes as JSON lines on standard output, to try things out."""

    type: Literal["console"]
    """Name of the sink."""
    before_images: bool = True
    """Write the row before an update as `update_preimage`."""

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return None  # each line names its table


def _open(options: ConsoleOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.console.sink import ConsoleSink

    return ConsoleSink(options, spark, pipeline)


CONSOLE = SinkKind(
    name="console",
    options=ConsoleOptions,
    open=_open,
    example=lambda folder: ConsoleOptions(type="console"),
    keeps_tables=False,
    durable=False,
)
