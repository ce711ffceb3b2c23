"""The file of a subscription server: every option, its default and its reason (docs/serve.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from penstock.config import PipelineConfig, RelayLogConfig, Secret, StoreConfig, expanded
from penstock.config.source_section import SourceSection
from penstock.errors import ConfigError
from penstock.model.section import Section
from penstock.model.units import Milliseconds
from penstock.serve.filters import BadFilter, Filter
from penstock.serve.mysql import StartAt
from penstock.serve.passwords import Account, known

NAME = re.compile(r"^[A-Za-z0-9._-]{1,100}$")
"""A name of a destination is part of the names of files."""


class ListenSection(Section):
    """Addresses as host:port. Without `tls`, use addresses that only trusted machines reach."""

    canal: str = "127.0.0.1:11111"
    """For clients of Canal."""
    http: str | None = None
    """For `/health`, `/destinations` and changes as server-sent events or by WebSocket. None: no HTTP."""
    grpc: str | None = None
    """For `penstock.client` and other clients of Arrow Flight, which is a gRPC service. None: no Flight."""

    @property
    def addresses(self) -> dict[str, str]:
        """By what is spoken there."""
        others = {"http": self.http, "grpc": self.grpc}
        return {"canal": self.canal} | {name: one for name, one in others.items() if one is not None}

    @field_validator("canal", "http", "grpc")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None:
            host, _, port = value.rpartition(":")
            if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
                raise ValueError(f"{value!r} is not an address; write it as host:port")
        return value


Listener = Literal["canal", "http", "grpc"]


class TlsSection(Section):
    """Encrypts connections."""

    cert: Path
    """PEM file with the server's certificate, and those that signed it."""
    key: Path
    """PEM file with its private key, which has no passphrase."""
    listeners: list[Listener] = Field(["canal", "http", "grpc"])
    """Where it is used. Canal's own clients do not encrypt: leave `canal` out for them."""


class DestinationSection(Section):
    """What clients of one name read."""

    filter: str = ""
    """Regular expressions for `database.table`, divided by commas. Empty: all tables. The filter of a client
    can only narrow it."""
    exclude: str = ""
    """The same, for tables that are left out (Canal: the black filter)."""
    columns: dict[str, list[str]] = Field({})
    """By table, as `database.table`: the only columns that rows have."""
    exclude_columns: dict[str, list[str]] = Field({})
    """By table: columns that rows do not have."""
    start: StartAt = StartAt(at="latest")
    """Where a client begins that has not acknowledged anything yet."""
    batch: Literal["items", "bytes"] = "items"
    """What the size that a client asks for counts: entries (Canal: ITEMSIZE), or KiB (Canal: MEMSIZE)."""
    ddl: bool = True
    """Whether clients get statements that define tables."""
    row_statements: bool = True
    """Whether clients get statements that change rows without row events, as QUERY with the SQL."""
    transaction_entries: bool = True
    """Whether clients get TRANSACTIONBEGIN and TRANSACTIONEND."""
    faithful: bool = False
    """Repeats what Canal does: ENUM as its ordinal, batches that outlive their connection, and waiting until
    a batch is full."""

    @model_validator(mode="after")
    def _usable(self) -> DestinationSection:
        try:
            Filter((self.filter,), self.exclude)
        except BadFilter as error:
            raise ValueError(str(error)) from None
        for name in (*self.columns, *self.exclude_columns):
            if "." not in name:
                raise ValueError(f"`{name}` is no table; write it as database.table")
        if both := self.columns.keys() & self.exclude_columns.keys():
            raise ValueError(f"`{min(both)}` has `columns` and `exclude_columns`; give one of them")
        return self

    @property
    def tables(self) -> Filter:
        return Filter((self.filter,), self.exclude)


class UserSection(Section):
    """A user, with one of three forms of the password."""

    password: Secret | None = None
    """The password. Use `${NAME}` to take it from the environment."""
    password_sha1_sha1: str | None = None
    """SHA1(SHA1(password)) in hexadecimal digits: Canal's `canal.passwd`. It serves all clients."""
    password_sha256: str | None = None
    """SHA-256 of the password in hexadecimal digits. It serves only clients that send the password as it is.
    Java clients from Canal 1.1.3 on scramble it. A password that is the user's name serves all clients."""
    destinations: list[str] = Field(["*"])
    """The destinations that the user may read; `*`: all."""

    @model_validator(mode="after")
    def _one_form(self) -> UserSection:
        forms = {"password_sha1_sha1": 40, "password_sha256": 64}
        for name, digits in forms.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(rf"\*?[0-9a-fA-F]{{{digits}}}", value):
                raise ValueError(f"`{name}` has {digits} hexadecimal digits")
        if self.password is None and self.password_sha1_sha1 is None and self.password_sha256 is None:
            raise ValueError("give `password`, `password_sha1_sha1` or `password_sha256`")
        return self

    def account(self, name: str) -> Account:
        """What is known of the password of the user `name`."""

        def bytes_of(digits: str | None) -> bytes | None:
            return None if digits is None else bytes.fromhex(digits.removeprefix("*"))

        return known(name, self.password, bytes_of(self.password_sha1_sha1), bytes_of(self.password_sha256))


class TokenSection(Section):
    """A token for HTTP and Arrow Flight, in one of two forms."""

    token: Secret | None = None
    """The token. Use `${NAME}` to take it from the environment."""
    token_sha256: str | None = Field(None, pattern="^[0-9a-fA-F]{64}$")
    """SHA-256 of the token in hexadecimal digits."""
    destinations: list[str] = Field(["*"])
    """The destinations that may be read with it; `*`: all."""

    @model_validator(mode="after")
    def _one_form(self) -> TokenSection:
        if (self.token is None) == (self.token_sha256 is None):
            raise ValueError("give `token` or `token_sha256`")
        return self

    @property
    def digest(self) -> bytes | None:
        return None if self.token_sha256 is None else bytes.fromhex(self.token_sha256)


class PositionsSection(Section):
    """Where it is stored what clients have acknowledged."""

    type: Literal["memory", "file", "zookeeper", "mixed", "period"] = "file"
    """`memory`: forgotten when the server ends. `file`: one file for each destination. `zookeeper`: Canal's
    nodes, written before the client gets its next answer; `mixed`: the same, but the client does not wait;
    `period`: the same, once a second. With `zookeeper` in this file, `file` means `zookeeper`."""
    path: Path | None = None
    """Directory of the files."""

    @model_validator(mode="after")
    def _has_path(self) -> PositionsSection:
        if self.type == "file" and self.path is None:
            raise ValueError("give `path`, a directory, or `type: memory`")
        return self

    @property
    def in_zookeeper(self) -> bool:
        return self.type in ("zookeeper", "mixed", "period")


class ServerConfig(Section):
    """A subscription server: a relay log, and destinations that clients subscribe to."""

    name: str = Field("serve", pattern=NAME.pattern)
    """Name of the server among the readers of the relay log."""
    listen: ListenSection = ListenSection()
    source: SourceSection | None = None
    """The database, as in a pipeline file. The server then runs the receiver, unless another process has it.
    None: the relay log is one that somebody else writes."""
    relay_log: RelayLogConfig
    store: StoreConfig = StoreConfig()
    destinations: dict[str, DestinationSection] = Field(min_length=1)
    """By name: what clients may read."""
    users: dict[str, UserSection] = Field({})
    """By name. Empty: anybody may connect, so listen only on addresses of this machine."""
    http_token: Secret | None = None
    """A token for all destinations, as in `tokens`."""
    tokens: dict[str, TokenSection] = Field({})
    """By a name of your choice: what clients send as `Authorization: Bearer TOKEN` over HTTP and Arrow
    Flight. If there are any, HTTP needs one, but for `/health`. Flight needs one, or one of `users`."""
    admin_token: Secret | None = None
    """What HTTP requests of an operator send, who stops and starts destinations and reads logs. None: there
    are no such requests."""
    tls: TlsSection | None = None
    """None: connections are not encrypted."""
    positions: PositionsSection
    zookeeper: list[str] = Field([])
    """Addresses host:port of ZooKeeper. Of the servers that are given the same ones, each destination is
    served by one, and by another when that one ends. Clients of Canal find it there."""
    zookeeper_timeout: Milliseconds = Field(5_000, ge=1000, le=40_000)
    """How long a server may be silent before ZooKeeper lets others take over from it. ZooKeeper must allow it
    (`maxSessionTimeout`, by default 20 ticks of 2 s)."""
    advertise: str | None = None
    """The address host:port at which clients reach this server, as it is written into ZooKeeper. None:
    `listen.canal`."""
    takeover_after: Milliseconds = Field(60_000, ge=1000)
    """How long the client of a subscription may send nothing before another connection may take its
    place."""
    connections_max: int = Field(1000, ge=1)
    """Connections at the same time. More are closed at once."""
    failed_logins_per_minute_max: int = Field(60, ge=1)
    """Logins of one address that may fail within a minute. Then it is refused for the rest of that minute."""

    @model_validator(mode="after")
    def _named(self) -> ServerConfig:
        if self.relay_log.path is None:
            raise ValueError("give `relay_log.path`")
        if self.zookeeper and not self.advertise and self.listen.canal.startswith(("0.0.0.0:", "[::]:")):
            raise ValueError("give `advertise`, the address of this machine that clients find in ZooKeeper")
        if self.positions.in_zookeeper and not self.zookeeper:
            raise ValueError(f"`positions.type: {self.positions.type}` needs `zookeeper`")
        for name in self.destinations:
            if not NAME.match(name):
                raise ValueError(f"the destination {name!r} needs a name of letters, digits, dots and dashes")
        return self

    @property
    def pipeline(self) -> PipelineConfig:
        """The same source and relay log as those of a pipeline, for the code that pipelines use."""
        source = self.source
        if (
            source is not None
            and "start" in type(source).model_fields
            and "start" not in source.model_fields_set
        ):
            # As far back as a destination may want to begin.
            latest = all(one.start.at == "latest" for one in self.destinations.values())
            source = source.model_copy(update={"start": StartAt(at="latest" if latest else "earliest")})
        path = self.relay_log.path
        assert path is not None
        return PipelineConfig(
            name="serve", source=source or {"user": ""}, tables={"include": ["*.*"]}, state=path / "serve",
            relay_log=self.relay_log, store=self.store,
        )  # fmt: skip


def is_server_file(path: Path) -> bool:
    """Whether it is one, and not a pipeline file."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    return isinstance(document, dict) and "destinations" in document


def load(path: Path) -> ServerConfig:
    """Relative paths count from the file's folder. Raises `ConfigError`."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"The server's file {path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigError(f"The server's file {path} is not valid YAML{place}.") from None
    if not isinstance(document, dict):
        raise ConfigError(f"The server's file {path} has no options.", hint="docs/serve.md shows one.")
    try:
        found = ServerConfig.model_validate(expanded(document, path))
    except ValidationError as error:
        said = "; ".join(_explained(item) for item in error.errors())
        raise ConfigError(f"{path}: {said}.", hint="docs/serve.md has all options.") from None
    return _rooted(found, path.resolve().parent)


def _explained(item: Any) -> str:
    where = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        return f"unknown option `{where}`"
    if item["type"] == "missing":
        return f"option `{where}` is missing"
    message = item["msg"].removeprefix("Value error, ")
    return f"option `{where}`: {message}" if where else message


def _rooted(config: ServerConfig, base: Path) -> ServerConfig:
    def absolute(path: Path | None) -> Path | None:
        return None if path is None else (base / path.expanduser()).resolve()

    archive = config.relay_log.archive
    if archive is not None and "://" not in archive:
        archive = str(absolute(Path(archive)))
    relay_log = config.relay_log.model_copy(
        update={"path": absolute(config.relay_log.path), "archive": archive}
    )
    tls = config.tls
    if tls is not None:
        tls = tls.model_copy(update={"cert": absolute(tls.cert), "key": absolute(tls.key)})
    positions = config.positions.model_copy(update={"path": absolute(config.positions.path)})
    source = config.source
    if source is not None:
        paths = {name: absolute(value) for name, value in source if isinstance(value, Path)}
        source = source.model_copy(update=paths)
    return config.model_copy(
        update={"relay_log": relay_log, "positions": positions, "source": source, "tls": tls}
    )
