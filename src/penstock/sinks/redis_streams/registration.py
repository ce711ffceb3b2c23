"""The sink `redis-streams`: its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.sinks import message_formats
from penstock.sinks.kind import Probe, SinkKind
from penstock.sinks.redis.registration import ServerOptions, check_installed
from penstock.sinks.schema_registry import RegistryOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink, Subject

_PARTS = ("{source}", "{database}", "{table}")


class RedisStreamsOptions(ServerOptions):
    """Messages in streams of Redis or Valkey, in a format that consumers of other tools know
    (docs/redis-streams.md)."""

    type: Literal["redis-streams"]
    """Name of the sink."""
    format: str = "debezium"
    """Format of the messages: debezium, maxwell, canal, json, cloudevents, avro, protobuf."""
    options: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Options of the format (docs/formats.md), for example `topic.prefix: shop`."""
    registry: RegistryOptions | None = None
    stream: str = "{database}.{table}"
    """Name of a table's stream. `{source}` is the pipeline's name at the source: Debezium's
    `topic.prefix`."""
    transaction_stream: str = "{source}.transaction"
    """Stream of the messages BEGIN and END (`provide.transaction.metadata` of the format debezium)."""
    schema_stream: str | None = None
    """Stream of the messages of changed definitions. None: with the format debezium
    (`include.schema.changes`) `{source}`, and with others the table's own stream."""
    source: str = "penstock"
    """What `{source}` stands for. With the format debezium also its option `topic.prefix`."""
    length_max: int | None = Field(None, ge=1)
    """About so many entries are kept in each stream; older ones are removed. None: all."""

    @field_validator("stream", "transaction_stream", "schema_stream")
    @classmethod
    def _is_template(cls, value: str | None) -> str | None:
        rest = value or ""
        for part in _PARTS:
            rest = rest.replace(part, "")
        if value is not None and (not value or "{" in rest or "}" in rest):
            raise ValueError("a stream's name may have {source}, {database} and {table}")
        return value

    @model_validator(mode="after")
    def _format_is_known(self) -> Self:
        message_formats.check_format(self.format, self.format_options, self.registry)
        return self

    @property
    def format_options(self) -> str:
        return message_formats.format_options(self.format, self.options, self.source)

    @property
    def tells_definitions(self) -> bool:
        return message_formats.tells_definitions(self.format, self.options)

    @property
    def definitions_apart(self) -> bool:
        """Whether messages of definitions have a stream of their own."""
        return self.tells_definitions and (self.format == "debezium" or self.schema_stream is not None)

    def stream_of(self, subject: Subject) -> str:
        if subject is None:
            return self._filled(self.transaction_stream, None)
        if not isinstance(subject, TableId):
            return self._filled(self.schema_stream or "{source}", None)
        return self._filled(self.stream, subject)

    def _filled(self, template: str, table: TableId | None) -> str:
        database, name = ("", "") if table is None else (table.database, table.table)
        parts = dict(zip(_PARTS, (self.source, database, name), strict=True))
        pieces, rest = [], template
        while rest:  # in one pass: names may have braces
            place, part = min((rest.find(one) % (len(rest) + 1), one) for one in _PARTS)
            pieces.append(rest[:place] + (parts[part] if place < len(rest) else ""))
            rest = rest[place + len(part) :]
        return "".join(pieces)

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return None  # several tables may share a stream: their messages name them


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
