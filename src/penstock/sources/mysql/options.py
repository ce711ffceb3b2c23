"""The options of MySQL and MariaDB: the section `source` of the pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.config import PipelineConfig, Secret
from penstock.config.sections import HOST_SCHEMA, check_addresses, spread_hosts
from penstock.errors import ConfigError, LoginRefused, TransientError
from penstock.model.section import TableName
from penstock.model.units import Milliseconds
from penstock.sources.kind import SourceOptions
from penstock.sources.log_start import LogStart


class StartAt(LogStart):
    """The place in the source's log at which a new relay log begins. Give only one of these options."""

    gtid: str | None = None
    """Everything after this set of executed GTIDs."""
    file: str | None = None
    """Name of a file of the source's log; needs `position`."""
    position: int | None = Field(None, ge=4)
    """Position in `file` at which a transaction begins, in bytes."""

    @model_validator(mode="after")
    def _whole(self) -> StartAt:
        if (self.file is None) != (self.position is None):
            raise ValueError("`file` and `position` go together")
        return self

    def ways(self) -> dict[str, Any]:
        return {**super().ways(), "gtid": self.gtid, "file + position": self.file}

    def check(self) -> None:
        from penstock._core import GtidSet

        super().check()
        try:
            GtidSet(self.gtid or "")
        except ValueError as error:
            raise ConfigError(f"`start.gtid`: {error}.") from None


class MySqlOptions(SourceOptions):
    """The database whose log is read."""

    type: Literal["mysql"] = "mysql"
    """Kind of source: MySQL or MariaDB."""
    host: Annotated[str, WithJsonSchema(HOST_SCHEMA)] = "127.0.0.1"
    """Name or address of the server. A list `[host:port, …]` names several servers of one topology: the
    first is preferred, the others are `failover`."""
    port: int = Field(3306, ge=1, le=65535)
    """TCP port of the server."""
    user: str
    """Account that reads the log and the tables. It needs SELECT, REPLICATION SLAVE and REPLICATION
    CLIENT."""
    password: Secret = Secret()
    """Password of the account. Use `${NAME}` to take it from the environment."""
    password_file: Path | None = None
    """File with the password, in place of `password`. It is read again at each login, so the password can be
    changed while the pipeline runs. On a cluster it must be at this path on each machine."""
    allow_cleartext_password: bool = False
    """Allows passwords in clear text for accounts that need it (`mysql_clear_password`, `dialog`: PAM,
    LDAP). Without this option they are sent only over TLS with a verified certificate (`tls: verify_ca` or
    `verify_identity`), because anybody who answers at the address may ask for the password."""
    tls: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    """`preferred` and `required` encrypt but do not verify the server; `verify_ca` and `verify_identity`
    do."""
    tls_ca: Path | None = None
    """File with the certificates (PEM) that must have signed the server's certificate."""
    tls_cert: Path | None = None
    """File with the client certificate (PEM), for accounts with REQUIRE X509."""
    tls_key: Path | None = None
    """File with the private key of `tls_cert` (PEM)."""
    failover: list[str] = Field([])
    """More servers `host:port` of the same topology, to be followed by GTID when this one is gone. A list
    in `host` means the same."""
    failover_wait: Milliseconds = 60_000
    """With several hosts: how long to look for one that has everything in the relay log, before the
    pipeline stops. A replica that is still applying these transactions is waited for without limit."""
    start: StartAt = StartAt(at="latest")
    server_id: int | None = Field(None, ge=1, le=2**32 - 1)
    """Replica server id of the receiver. None: derived from the relay log's identity."""
    watermark_table: TableName | None = None
    """A table `database.table` for the watermarks of snapshots and of `penstock verify`, on a MySQL without
    GTIDs. docs/delivery.md has its definition."""
    connect_timeout: Milliseconds = Field(10_000, ge=1)
    """Limit for opening a connection: name lookup, TCP, greeting, TLS and login together."""
    read_timeout: Milliseconds = Field(30_000, ge=1)
    """After this time of silence, the server is asked over a second connection whether it still executes
    the statement. If so, the wait continues: slow queries are not cut off. If not, or without an answer,
    the connection is closed and the work is retried."""
    heartbeat: Milliseconds = 5_000
    """How often an idle source sends a heartbeat. The receiver reconnects after three missed ones."""
    reconnect_max: Milliseconds = 30_000
    """Longest pause between attempts to reach the source."""

    @model_validator(mode="before")
    @classmethod
    def _from_hosts(cls, value: Any) -> Any:
        return spread_hosts(value, 3306)

    @property
    def begins_at_end(self) -> bool:
        return self.start.at == "latest"

    def beginning(self, *, latest: bool) -> Self:
        if "start" in self.model_fields_set:
            return self
        return self.model_copy(update={"start": StartAt(at="latest" if latest else "earliest")})

    def beginning_at(self, place: str) -> Self:
        """At the beginning of the place's file."""
        file, _, _ = place.rpartition(":")
        return self.model_copy(update={"start": StartAt(file=file, position=4)})

    @model_validator(mode="after")
    def _one_password(self) -> MySqlOptions:
        if self.password_file is not None and "password" in self.model_fields_set:
            raise ValueError("give `password` or `password_file`, not both")
        return self

    def current_password(self) -> bytes:
        """The password for the next login."""
        secret = self.password if self.password_file is None else Secret(kept=self.password_file)
        try:
            return secret.reveal().encode()
        except TransientError as error:
            raise LoginRefused(error.message, hint=error.hint) from error

    @model_validator(mode="after")
    def _addresses(self) -> MySqlOptions:
        check_addresses(self.failover)
        return self


def options_of(config: PipelineConfig) -> MySqlOptions:
    """The section `source` of a pipeline whose source is MySQL or MariaDB. Raises `ConfigError` for others:
    some commands are about these servers alone."""
    if not isinstance(config.source, MySqlOptions):
        raise ConfigError(
            f"The pipeline {config.name} has a source of type {config.source.type}, and this needs MySQL or "
            "MariaDB.",
            hint="Give a pipeline file with `source.type: mysql`.",
        )
    return config.source
