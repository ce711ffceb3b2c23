"""The options of the sink `redis-streams`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.sinks.message_options import MessageOptions, Places, Template
from penstock.sinks.redis.options import ServerOptions


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
