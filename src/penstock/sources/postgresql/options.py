"""The options of PostgreSQL: the section `source` of the pipeline file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.config import PipelineConfig, Secret
from penstock.config.sections import HOST_SCHEMA, check_addresses, spread_hosts
from penstock.errors import ConfigError
from penstock.model.units import Milliseconds
from penstock.sources.kind import SourceOptions
from penstock.sources.log_start import LogStart

_NAME_MAX = 63
"""Characters of a replication slot's name, of which only lower case, digits and `_` are allowed."""


class StartAtLsn(LogStart):
    """A place in the server's log. Give only one of these options."""

    lsn: str | None = Field(None, pattern=r"^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$")
    """A position as the server prints it, such as `0/16B3748`. Starts with the first transaction whose commit
    is not before it."""

    def ways(self) -> dict[str, Any]:
        return {**super().ways(), "lsn": self.lsn}


class PostgreSqlOptions(SourceOptions):
    """The database whose log is read."""

    type: Literal["postgresql"]
    """Name of the source."""
    host: Annotated[str, WithJsonSchema(HOST_SCHEMA)] = "127.0.0.1"
    """Name or address of the server itself. A connection pooler in front of it cannot send the log. A list
    `[host:port, …]` names a primary and its standbys: the one that is the primary is followed."""
    port: int = Field(5432, ge=1, le=65535)
    """TCP port of the server."""
    failover: list[str] = Field([])
    """More servers `host:port`, one of which becomes the primary when this one is gone. A list in `host`
    means the same."""
    database: str
    """The database that is followed. Its schemas are the databases of tables: `tables: [public.*]`."""
    user: str
    """Role that reads the log and the tables. It needs REPLICATION and SELECT."""
    password: Secret = Secret()
    """Password of the role. Use `${NAME}` to take it from the environment."""
    tls: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    """libpq's `sslmode`. Only `verify-ca` and `verify-full` make sure who answers."""
    tls_ca: Path | None = None
    """File with the certificates (PEM) that must have signed the server's certificate."""
    slot: str | None = Field(None, pattern=r"^[a-z0-9_]{1,63}$")
    """Name of the replication slot, which is created. None: named after the pipeline."""
    publication: str | None = None
    """Name of the publication with the tables. None: named after the pipeline."""
    streaming: bool = True
    """Whether the server sends large transactions while they run (those beyond its
    `logical_decoding_work_mem`). They are kept in files beside the relay log, and put into it when they have
    committed."""
    connect_timeout: Milliseconds = Field(10_000, ge=1000)
    """Limit for opening a connection."""
    reconnect_max: Milliseconds = Field(30_000, ge=100)
    """Longest pause between attempts to reach the source."""

    @model_validator(mode="before")
    @classmethod
    def _from_hosts(cls, value: Any) -> Any:
        return spread_hosts(value, 5432)

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        check_addresses(self.failover)
        return self

    @property
    def addresses(self) -> list[str]:
        """`host:port` of each server."""
        return [f"{self.host}:{self.port}", *self.failover]

    @property
    def address(self) -> str:
        """All of them, for people."""
        return ", ".join(self.addresses)

    def at(self, address: str) -> Self:
        """Another server alone, which is reached like this one."""
        host, _, port = address.rpartition(":")
        return self.model_copy(update={"host": host, "port": int(port), "failover": []})

    @property
    def named_after_pipeline(self) -> tuple[str, ...]:
        return tuple(name for name in ("publication", "slot") if getattr(self, name) is None)


def options_of(config: PipelineConfig) -> PostgreSqlOptions:
    """The section `source` of a pipeline whose source is PostgreSQL. Raises `ConfigError` for others."""
    if not isinstance(config.source, PostgreSqlOptions):
        raise ConfigError(f"The pipeline {config.name} has a source of type {config.source.type}.")
    return config.source


def slot_of(config: PipelineConfig) -> str:
    """The name of the replication slot."""
    return options_of(config).slot or _own_name(config.name)


def publication_of(config: PipelineConfig) -> str:
    """The name of the publication."""
    return options_of(config).publication or _own_name(config.name)


def _own_name(pipeline: str) -> str:
    return ("penstock_" + re.sub(r"[^a-z0-9_]", "_", pipeline.lower()))[:_NAME_MAX]
