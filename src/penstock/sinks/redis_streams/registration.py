"""The sink `redis-streams`: its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from penstock.model.shards import Shards
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.message_options import MessageOptions, Places, Template
from penstock.sinks.redis.registration import ServerOptions, check_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


class RedisStreamsOptions(MessageOptions, ServerOptions):
    """Messages in streams of Redis or Valkey, in a format that consumers of other tools know
    (docs/redis-streams.md)."""

    type: Literal["redis-streams"]
    """Name of the sink."""
    stream: Template = "{database}.{table}"
    """Name of a table's stream."""
    transaction_stream: Template = "{source}.transaction"
    """Stream of the messages BEGIN and END (`provide.transaction.metadata` of the format debezium)."""
    schema_stream: Template | None = None
    """Stream of the messages of changed definitions. None: with the format debezium
    (`include.schema.changes`) `{source}`, and with others the table's own stream."""
    length_max: int | None = Field(None, ge=1)
    """About so many entries are kept in each stream; older ones are removed. None: all."""

    @property
    def places(self) -> Places:
        return Places(self.stream, self.transaction_stream, self.schema_stream)


def _open(options: RedisStreamsOptions, spark: SparkSession, pipeline: str, shards: Shards) -> Sink:
    check_installed("redis-streams")
    from penstock.sinks.redis_streams.sink import RedisStreamsSink

    return RedisStreamsSink(options, pipeline)


def _probe(options: RedisStreamsOptions, conf: Mapping[str, str]) -> Probe:
    check_installed("redis-streams")
    from penstock.sinks.redis_streams.probe import probe

    return probe(options)


REDIS_STREAMS = SinkKind(
    name="redis-streams",
    options=RedisStreamsOptions,
    open=_open,
    example=lambda folder: RedisStreamsOptions(type="redis-streams", url="redis://127.0.0.1:6379/0"),
    example_needs_server=True,
    keeps_tables=False,
    takes_messages=True,
    probes_without_spark=True,
    probe=_probe,
)
