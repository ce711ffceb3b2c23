"""The file of a subscription server: every option, its default and its reason (docs/serve.md)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from penstock.access.rates import Limits
from penstock.access.tokens import Rights, TokenSection
from penstock.config import PipelineConfig, RelayLogConfig, Secret, StoreConfig, options_file
from penstock.config.http_section import HttpSection, TlsSection, check_address
from penstock.config.sections import check_place, url_of
from penstock.config.source_section import SourceSection
from penstock.errors import ConfigError
from penstock.model.section import Section
from penstock.model.units import Milliseconds
from penstock.serve.batches import SOURCES_MAX
from penstock.serve.filters import BadFilter, Filter
from penstock.serve.listeners.passwords import Account, known
from penstock.serve.start import Start
from penstock.sources.kind import SourceOptions
from penstock.sources.log_start import LogStart

NAME = re.compile(r"^[A-Za-z0-9._-]{1,100}$")
"""A name of a destination is part of the names of files."""


MERGED_HEARTBEAT_MS = 1000
"""Heartbeats of merged sources. An idle source delays the others until its next heartbeat."""


class ListenSection(Section):
    """Addresses as host:port. Without `tls`, use addresses that only trusted machines reach."""

    canal: str = "127.0.0.1:11111"
    """For clients of Canal."""
    grpc: str | None = None
    """For `penstock.client` and other clients of Arrow Flight, which is a gRPC service. None: no Flight."""

    _are_addresses = field_validator("canal", "grpc")(check_address)


Listener = Literal["canal", "http", "grpc"]


class ServerTlsSection(TlsSection):
    """Encrypts connections."""

    listeners: list[Listener] = Field(["canal", "http", "grpc"])
    """Where it is used. Canal's own clients do not encrypt: leave `canal` out for them."""


class LogSection(Section):
    """A source, and its relay log."""

    source: SourceSection | None = None
    """The database, as in a pipeline file. None: the relay log is one that somebody else writes."""
    relay_log: RelayLogConfig
    """Each source has a log of its own. `path` must be given."""


class DestinationSection(Section):
    """A destination: the part of the log that clients read who name it."""

    sources: list[str] = Field([], max_length=SOURCES_MAX)
    """Names in the file's `sources`. Changes of several are merged by the time of their commits. Empty: all
    of them."""
    filter: str = ""
    """Regular expressions for `database.table`, divided by commas. Empty: all tables. The filter of a client
    can only narrow it."""
    exclude: str = ""
    """Regular expressions for tables that are left out (Canal: the black filter)."""
    columns: dict[str, list[str]] = Field({})
    """For tables, as `database.table`, the only columns that their rows have."""
    exclude_columns: dict[str, list[str]] = Field({})
    """For tables, columns that are left out of their rows."""
    start: Start = LogStart(at="latest")
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
            self.start.check()
        except (BadFilter, ConfigError) as error:
            raise ValueError(str(error).rstrip(".")) from None
        for name in (*self.columns, *self.exclude_columns):
            if "." not in name:
                raise ValueError(f"`{name}` is no table; write it as database.table")
            if set(name) & set("*?\\"):
                raise ValueError(
                    f"`{name}` is a pattern; `columns` and `exclude_columns` name one table each"
                )
        if len(set(self.sources)) < len(self.sources):
            raise ValueError("`sources` has a name twice")
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
    requests_per_second_max: int | None = Field(None, ge=0)
    """The limit of this user. None: that of the server."""

    @model_validator(mode="after")
    def _one_form(self) -> UserSection:
        forms = {"password_sha1_sha1": 40, "password_sha256": 64}
        for name, digits in forms.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(rf"\*?[0-9a-fA-F]{{{digits}}}", value):
                raise ValueError(f"`{name}` must have {digits} hexadecimal digits")
        if self.password is None and self.password_sha1_sha1 is None and self.password_sha256 is None:
            raise ValueError("give `password`, `password_sha1_sha1` or `password_sha256`")
        if self.password is not None and not self.password:
            raise ValueError("`password` is empty")
        return self

    def account(self, name: str) -> Account:
        """The password of the user `name`, as far as it is known."""

        def bytes_of(digits: str | None) -> bytes | None:
            return None if digits is None else bytes.fromhex(digits.removeprefix("*"))

        return known(name, self.password, bytes_of(self.password_sha1_sha1), bytes_of(self.password_sha256))


class ReaderTokenSection(TokenSection):
    """A token for HTTP and Arrow Flight, in one of two forms."""

    destinations: list[str] = Field(["*"])
    """The destinations that may be read with it, and that an operator may stop and start; `*`: all."""

    def rights(self, name: str, limits: Limits) -> Rights:
        return replace(super().rights(name, limits), destinations=frozenset(self.destinations))


class PositionsSection(Section):
    """Where the positions are stored up to which clients have acknowledged."""

    type: Literal["memory", "file", "store", "zookeeper", "mixed", "period"] = "file"
    """`memory`: forgotten when the server ends. `file`: one file for each destination. `store`: in `url`,
    which other servers share. `zookeeper`: Canal's nodes, written before the client gets its next answer;
    `mixed`: the same, but the client does not wait; `period`: the same, once a second. With `zookeeper` in
    this file, `file` means `zookeeper`."""
    path: Path | None = None
    """Directory of the files."""
    url: str | None = None
    """With `store`: a directory on a disk that the servers share, or the URL of an object store such as
    `s3://bucket/serve`. Of the servers that are given the same one, each destination is served by one, and by
    another when that ends. The section `store` says how it is reached."""
    lease_timeout: Milliseconds = Field(5_000, ge=1000, le=60_000)
    """With `store`: how long a server may be silent before others take over from it. It renews its lease five
    times within that: a request for each destination."""
    interval: Milliseconds = Field(0, ge=0, le=60_000)
    """With `store`: how often positions are written at most. 0: an acknowledgement is written before the
    client gets its next answer. More: what was acknowledged within this time comes again after a crash."""

    _url_is_place = field_validator("url")(check_place)

    @property
    def store_url(self) -> str | None:
        """The URL of the store."""
        return None if self.url is None else url_of(self.url)

    @model_validator(mode="after")
    def _has_path(self) -> PositionsSection:
        if (self.type == "store") != (self.url is not None):
            raise ValueError("`type: store` and `url` go together")
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
    http: HttpSection | None = None
    """For `/health`, `/destinations` and changes as server-sent events or by WebSocket. None: no HTTP."""
    source: SourceSection | None = None
    """The database, as in a pipeline file. The server then runs the receiver, unless another process has it.
    None: the relay log is one that somebody else writes."""
    relay_log: RelayLogConfig = RelayLogConfig()
    sources: dict[str, LogSection] = Field({}, max_length=SOURCES_MAX)
    """By a name of your choice: several databases, for example the shards of one application. They replace
    `source` and `relay_log`."""
    store: StoreConfig = StoreConfig()
    destinations: dict[str, DestinationSection] = Field(min_length=1)
    """By name: what clients may read."""
    users: dict[str, UserSection] = Field({})
    """By name. Empty: anybody may connect, so listen only on addresses of this machine."""
    tokens: dict[str, ReaderTokenSection] = Field({})
    """By a name of your choice: what clients send as `Authorization: Bearer TOKEN` over HTTP and Arrow
    Flight. If there are any, HTTP needs one, but for `/health`. Flight needs one, or one of `users`. One with
    `role: operator` may also stop and start destinations, and read logs."""
    tls: ServerTlsSection | None = None
    """None: connections are not encrypted."""
    positions: PositionsSection
    zookeeper: list[str] = Field([])
    """Addresses host:port of ZooKeeper. Of the servers that are given the same ones, each destination is
    served by one, and by another when that one ends. Clients of Canal find it there."""
    zookeeper_timeout: Milliseconds = Field(5_000, ge=1000, le=40_000)
    """How long a server may be silent before ZooKeeper lets others take over from it. If ZooKeeper allows
    only less (`maxSessionTimeout`, by default 20 ticks of 2 s), that counts, and the log says so."""
    advertise: str | None = None
    """The address host:port at which clients reach this server, as it is written into ZooKeeper. None:
    `listen.canal`."""
    takeover_after: Milliseconds = Field(60_000, ge=1000)
    """How long the client of a subscription may send nothing before another connection may take its
    place."""
    connections_max: int = Field(1000, ge=1)
    """Connections at the same time. More are closed at once."""
    requests_per_second_max: int = Field(0, ge=0)
    """Requests that one user, one token, or without these one address, may send a second, over all its
    connections. More are refused with an error that says when to try again. Acknowledgements over Canal's
    protocol, which have no answer, do not count. 0: there is no limit."""
    failed_logins_per_minute_max: int = Field(60, ge=1)
    """Logins of one address that may fail within a minute. Then it is refused for the rest of that minute."""

    _advertises_address = field_validator("advertise")(check_address)

    @model_validator(mode="after")
    def _named(self) -> ServerConfig:
        self._check_sources()
        used: dict[str, str] = {}
        for name, address in self.addresses.items():
            if not address.endswith(":0") and (other := used.setdefault(address, name)) != name:
                raise ValueError(f"`{other}` and `{name}` have one address; each needs its own")
        if self.is_shared and not self.advertise and self.listen.canal.startswith(("0.0.0.0:", "[::]:")):
            raise ValueError("give `advertise`, the address of this machine that clients reach")
        if self.positions.type == "store" and self.zookeeper:
            raise ValueError("`positions.type: store` replaces `zookeeper`; give one of them")
        if self.positions.in_zookeeper and not self.zookeeper:
            raise ValueError(f"`positions.type: {self.positions.type}` needs `zookeeper`")
        for name in self.destinations:
            if not NAME.match(name):
                raise ValueError(f"the destination {name!r} needs a name of letters, digits, dots and dashes")
        return self

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses that are listened on, by protocol."""
        others = {"http": self.http and self.http.listen, "grpc": self.listen.grpc}
        return {"canal": self.listen.canal} | {name: one for name, one in others.items() if one}

    @property
    def is_shared(self) -> bool:
        """Whether other servers may serve its destinations."""
        return bool(self.zookeeper) or self.positions.type == "store"

    def _check_sources(self) -> None:
        if self.sources and self.model_fields_set & {"source", "relay_log"}:
            raise ValueError("`sources` replaces `source` and `relay_log`; give one or the other")
        for name, one in self.logs.items():
            if one.relay_log.path is None:
                raise ValueError(f"give `sources.{name}.relay_log.path`" if name else "give `relay_log.path`")
        if len({one.relay_log.path for one in self.logs.values()}) < len(self.logs):
            raise ValueError("each of the `sources` needs a `relay_log.path` of its own")
        for name in self.sources:
            if not NAME.match(name):
                raise ValueError(f"the source {name!r} needs a name of letters, digits, dots and dashes")
        for name, section in self.destinations.items():
            if unknown := set(section.sources) - set(self.sources):
                raise ValueError(f"the destination {name} has `{min(unknown)}`, which is not in `sources`")
        if self.sources and self.zookeeper:
            raise ValueError(
                "`sources` and `zookeeper` cannot be together: a position of Canal in ZooKeeper is one place "
                "of one source"
            )

    @property
    def logs(self) -> dict[str, LogSection]:
        """The sources and their logs, by name. The name of `source` and `relay_log` is empty."""
        return self.sources or {"": LogSection(source=self.source, relay_log=self.relay_log)}

    def sources_of(self, destination: str) -> list[str]:
        """The names of the logs that a destination reads, in their order."""
        return self.destinations[destination].sources or list(self.logs)

    def pipeline_of(self, name: str) -> PipelineConfig:
        """The source and relay log of this name as those of a pipeline, for the code that pipelines use."""
        source, relay_log = self.logs[name].source, self.logs[name].relay_log
        if source is not None:
            given, known = source.model_fields_set, type(source).model_fields
            readers = [one for to, one in self.destinations.items() if name in self.sources_of(to)]
            # As far back as a destination may want to begin.
            source = source.beginning(latest=all(one.start.at == "latest" for one in readers))
            if self.sources and "heartbeat" in known and "heartbeat" not in given:
                source = source.model_copy(update={"heartbeat": MERGED_HEARTBEAT_MS})
        assert relay_log.path is not None
        return PipelineConfig(
            name="serve", source=source or SourceOptions(type=""), tables={"include": ["*.*"]},
            state=relay_log.path / "serve", relay_log=relay_log, store=self.store,
        )  # fmt: skip


def is_server_file(path: Path) -> bool:
    """Whether the file is that of a subscription server, and not a pipeline file."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    return isinstance(document, dict) and "destinations" in document


def load(path: Path) -> ServerConfig:
    """Reads the file of a subscription server. Relative paths count from its folder. Raises `ConfigError`."""
    document = options_file.read(path, "server's file", "serve")
    try:
        found = ServerConfig.model_validate(document)
    except ValidationError as error:
        said = options_file.explained(error, ServerConfig, document)
        raise ConfigError(f"{path}: {said}.", hint="`penstock docs serve-options` has all options.") from None
    return _rooted(found, path.resolve().parent)


def _rooted(config: ServerConfig, base: Path) -> ServerConfig:
    def absolute(path: Path | None) -> Path | None:
        return None if path is None else (base / path.expanduser()).resolve()

    def place(text: str | None) -> str | None:
        return text if text is None or "://" in text else str(absolute(Path(text)))

    def rooted(relay_log: RelayLogConfig) -> RelayLogConfig:
        known = {"path": absolute(relay_log.path), "archive": place(relay_log.archive)}
        return relay_log.model_copy(update=known)

    def source_rooted(source: Any) -> Any:
        if source is None:
            return None
        return source.model_copy(
            update={name: absolute(value) for name, value in source if isinstance(value, Path)}
        )

    sources = {
        name: one.model_copy(update={"source": source_rooted(one.source), "relay_log": rooted(one.relay_log)})
        for name, one in config.sources.items()
    }
    return config.model_copy(
        update={
            "relay_log": rooted(config.relay_log),
            "positions": config.positions.model_copy(
                update={"path": absolute(config.positions.path), "url": place(config.positions.url)}
            ),
            "source": source_rooted(config.source),
            "sources": sources,
            "tls": config.tls and config.tls.rooted(absolute),
        }
    )
