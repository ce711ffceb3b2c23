"""Registers the sinks `python` and `http`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.shards import Shards
from penstock.sinks.calls.options import HttpOptions, PythonOptions
from penstock.sinks.kind import SinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _open_python(options: PythonOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.calls.sink import CallSink, imported

    return CallSink(lambda: imported(options.function), options.before_images, pipeline)


def _open_http(options: HttpOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    from penstock.sinks.calls.post import Post
    from penstock.sinks.calls.sink import CallSink

    return CallSink(lambda: Post(options), options.before_images, pipeline)


PYTHON = SinkKind(
    name="python",
    options=PythonOptions,
    open=_open_python,
    example=lambda folder: PythonOptions(
        type="python", function="penstock.sinks.calls.printing:print_changes", before_images=True
    ),
    keeps_tables=False,
    durable=False,
)


HTTP = SinkKind(
    name="http",
    options=HttpOptions,
    open=_open_http,
    example=lambda folder: HttpOptions(type="http", url="http://127.0.0.1:1/"),
    example_needs_server=True,
    keeps_tables=False,
    durable=False,
)
