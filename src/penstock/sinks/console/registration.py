"""Registers the sink `console`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.console.options import ConsoleOptions
from penstock.sinks.kind import SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


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
