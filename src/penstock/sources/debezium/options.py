"""The options of topics that Debezium fills: the section `source` of the pipeline file."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field
from typing_extensions import Self

from penstock.config import PipelineConfig, Secret
from penstock.encode.registry_access import RegistryAccess
from penstock.errors import ConfigError
from penstock.model.units import Milliseconds
from penstock.sources.kind import SourceOptions


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_list, json_schema_input_type=str | tuple[str, ...])]
Hidden = Annotated[Secret, BeforeValidator(_as_text, json_schema_input_type=str | bool | int | float)]


class SourceRegistry(RegistryAccess):
    """A schema registry with the REST API of Confluent's, for messages in Avro."""


class DebeziumOptions(SourceOptions):
    """Topics of Kafka that a connector of Debezium fills (docs/debezium-topics.md)."""

    type: Literal["debezium"]
    """Name of the source."""
    bootstrap: str
    """Addresses of some brokers: `host:9092,host:9092`."""
    topics: Texts = Field(min_length=1)
    """Names of topics, with `*` and `?`. Topics that are created later are followed, too."""
    registry: SourceRegistry | None = None
    start: Literal["earliest", "latest"] = "earliest"
    """Where a new relay log begins in each topic. With `latest`, tables have only the rows that change from
    then on."""
    on_error: Literal["stop", "skip"] = "stop"
    """What happens at a message that cannot be read. `skip` loses its change, counts it and logs it."""
    table: str | None = None
    """Name of the table of a message: a pattern with `{name}` (the connector's `topic.prefix`), `{database}`,
    `{schema}`, `{table}` and `{topic}`. None: `{schema}.{table}` if the database has schemas, otherwise
    `{database}.{table}`."""
    zoned_timestamps: Literal["instant", "utc"] = "instant"
    """What timestamps with a time zone become: a moment, or the date and time in UTC without a zone."""
    nanoseconds: Literal["number", "microseconds"] = "number"
    """What times with nanoseconds become: their number, or times cut to microseconds."""
    unavailable_value: str = "__debezium_unavailable_value"
    """The connector's `unavailable.value.placeholder`: stands for long values that did not change."""
    client: dict[str, Hidden] = Field(default_factory=dict)
    """Settings of the client (librdkafka's `CONFIGURATION.md`), such as `security.protocol`,
    `sasl.username` or `sasl.password`. Their values are not shown anywhere."""
    request_timeout: Milliseconds = Field(30_000, ge=1000)
    """How long a request waits for brokers. Then it is tried again."""
    reconnect_max: Milliseconds = Field(30_000, ge=100)
    """Longest pause between attempts to reach the brokers."""

    @property
    def begins_at_end(self) -> bool:
        return self.start == "latest"

    @property
    def reads_tables(self) -> bool:
        return False

    def beginning(self, *, latest: bool) -> Self:
        if "start" in self.model_fields_set:
            return self
        return self.model_copy(update={"start": "latest" if latest else "earliest"})

    @property
    def unavailable_uuid(self) -> str:
        """What the connector for PostgreSQL writes in lists of UUIDs: Java's `UUID.nameUUIDFromBytes`."""
        digest = hashlib.md5(self.unavailable_value.encode(), usedforsecurity=False).digest()
        return str(UUID(bytes=digest, version=3))


def options_of(config: PipelineConfig) -> DebeziumOptions:
    """The section `source` of a pipeline whose source is topics of Debezium. Raises `ConfigError` for
    others."""
    if not isinstance(config.source, DebeziumOptions):
        raise ConfigError(f"The pipeline {config.name} has a source of type {config.source.type}.")
    return config.source
