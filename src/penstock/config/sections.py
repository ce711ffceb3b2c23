"""The sections of a pipeline file: every option of each, its default, its unit and its reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from penstock.backoff import Schedule
from penstock.config.secret import Secret
from penstock.model.name import split_name
from penstock.model.section import Section, TableName
from penstock.model.units import Bytes, Milliseconds

_HOST_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


def _check_addresses(addresses: list[str]) -> None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{address!r} is not an address; write it as host:port")


class SourceConfig(Section):
    """The database whose log is read."""

    type: Literal["mysql"] = "mysql"
    """What the source is: MySQL or MariaDB."""
    host: Annotated[str, WithJsonSchema(_HOST_SCHEMA)] = "127.0.0.1"
    """Name or address of the server. A list `[host:port, …]` names several of one topology: the first is
    preferred, the others are `failover`."""
    port: int = Field(3306, ge=1, le=65535)
    """TCP port of the server."""
    user: str
    """The account that reads the log and the tables. It needs SELECT, REPLICATION SLAVE and REPLICATION
    CLIENT."""
    password: Secret = Secret()
    """Password of the account. Better `${NAME}`, from the environment, than the password itself."""
    allow_cleartext_password: bool = False
    """Some accounts (`mysql_clear_password`, `dialog`: PAM, LDAP) have the password sent as it is. Without
    this it is sent only over TLS with a verified certificate (`tls: verify_ca` or `verify_identity`), because
    anybody who answers at the address may ask for it."""
    tls: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    """`preferred` and `required` encrypt and do not look who answers; `verify_ca` and `verify_identity`
    do."""
    tls_ca: Path | None = None
    """File with the certificates that the server's own must be signed by (PEM)."""
    tls_cert: Path | None = None
    """File with the certificate that we show to the server (PEM), for accounts with REQUIRE X509."""
    tls_key: Path | None = None
    """File with the private key of `tls_cert` (PEM)."""
    failover: list[str] = Field([])
    """Further servers `host:port` of the same topology, to be followed by GTID when this one is gone. A list
    in `host` means the same: the first is preferred."""
    failover_wait: Milliseconds = 60_000
    """With several hosts: how long one is looked for that continues what we hold, before the pipeline stops.
    A replica that is still applying what we hold is waited for without limit."""
    server_id: int | None = Field(None, ge=1, le=2**32 - 1)
    """Replica server id of the receiver; None: one derived from the relay log's own identity."""
    connect_timeout: Milliseconds = Field(10_000, ge=1)
    """A connection is made within this time or given up: name, TCP, greeting, TLS and login together."""
    read_timeout: Milliseconds = Field(30_000, ge=1)
    """A server that has sent nothing for so long is asked over a second connection whether it still executes
    our statement. If so, we go on waiting: a slow query is not cut off. If not, or if it cannot be asked, the
    connection is dead; it is closed and the work is tried again. No read waits for longer."""
    heartbeat: Milliseconds = 5_000
    """How often an idle source says so. A receiver that hears nothing for three of them reconnects."""
    reconnect_max: Milliseconds = 30_000
    """Upper bound of the back-off between attempts to reach the source."""

    @model_validator(mode="before")
    @classmethod
    def _from_hosts(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("host"), list):
            return value
        port = value.get("port", 3306)
        addresses = [str(item) if ":" in str(item) else f"{item}:{port}" for item in value["host"]]
        if not addresses:
            raise ValueError("`host` names no server")
        host, _, first_port = addresses[0].rpartition(":")
        return {**value, "host": host, "port": first_port, "failover": addresses[1:]}

    @model_validator(mode="after")
    def _addresses(self) -> SourceConfig:
        _check_addresses(self.failover)
        return self


class StartAt(Section):
    """Where a new relay log begins. Exactly one of the ways."""

    shorthands: ClassVar[list[dict[str, Any]]] = [{"enum": ["latest", "earliest"]}]

    at: Literal["latest", "earliest"] | None = None
    """The end of the source's log, or the oldest file that the source still has. `start: latest` is short for
    `start: {at: latest}`."""
    gtid: str | None = None
    """Everything after this executed set."""
    file: str | None = None
    """Name of a file of the source's log; goes with `position`."""
    position: int | None = Field(None, ge=4)
    """Position in `file` at which a transaction begins, in bytes."""
    timestamp: str | None = None
    """ISO 8601; the first transaction committed at or after it."""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        return {"at": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_way(self) -> StartAt:
        if (self.file is None) != (self.position is None):
            raise ValueError("`file` and `position` go together")
        ways = [self.at, self.gtid, self.file, self.timestamp]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("give one of: latest, earliest, gtid, file + position, timestamp")
        return self


class RelayLogConfig(Section):
    """The copy of the source's log on local disk, from which everything else works."""

    path: Path | None = None
    """Directory; None: `relay` inside the pipeline's state directory. Pipelines of one source may share
    it."""
    segment_size: Bytes = 256 * 1024**2
    """A segment file is closed at the first transaction end past this size."""
    segment_age: Milliseconds = 3_600_000
    """A segment file is closed at the first transaction end past this age, if it is not full before."""
    span_size: Bytes = 4 * 1024**2
    """Bytes of log behind one index entry of a closed segment: the grain of parallel decode."""
    flush_interval: Milliseconds = 5
    """Longest time committed bytes wait for fsync while more keep coming; an idle source is flushed at
    once."""
    keep_size: Bytes = 0
    """Keep consumed segments up to this many bytes in all; 0: no limit by size."""
    keep_age: Milliseconds = 7 * 86_400_000
    """Keep consumed segments this long. Unread segments are never deleted."""
    disk_free_min: Bytes = 256 * 1024**2
    """The receiver waits, rather than writes, while the file system has less than this left."""


_PATTERNS_SCHEMA = {"type": "array", "items": {"type": "string"}, "minItems": 1}


class TablesConfig(Section):
    """Which tables are captured. A list of names is short for `include`."""

    shorthands: ClassVar[list[dict[str, Any]]] = [{"type": "string"}, _PATTERNS_SCHEMA]

    include: list[str] = Field(min_length=1)
    """Names `database.table`; `*` and `?` are wildcards in either part. A database whose name has dots stands
    in backticks, `` `a.b`.* ``; in backticks there are no wildcards."""
    exclude: list[str] = Field([])
    """Names in the same form. A table that matches one of them is left out, whatever `include` says."""

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"include": [value]}
        return {"include": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _dotted(self) -> TablesConfig:
        for pattern in [*self.include, *self.exclude]:
            if not all(part.text for part in split_name(pattern)):
                raise ValueError(
                    f"{pattern!r} names no database; write it as database.table, for example shop.*"
                )
        return self


class LoadConfig(Section):
    """No chunk begins while there is more load than this. Looked at about once a second."""

    threads_running_max: int | None = Field(None, ge=1)
    """Threads_running of the server that chunks are read from: all that run a statement, also our own."""
    replica_lag_max: Milliseconds | None = None
    """How far each of `replicas` may be behind."""
    replicas: list[str] = Field([])
    """Servers `host:port`, reached with the account of the source."""

    @model_validator(mode="after")
    def _together(self) -> LoadConfig:
        _check_addresses(self.replicas)
        if (self.replica_lag_max is None) == bool(self.replicas):
            raise ValueError("`replica_lag_max` and `replicas` go together")
        return self


class SnapshotConfig(Section):
    """The first read of the tables, and how hard it may press the server."""

    mode: Literal["initial", "never", "only"] = "initial"
    """`initial`: tables are read, and followed from then on. `never`: only changes from now on arrive.
    `only`: the run ends when the tables have been read."""
    chunk_rows: int = Field(50_000, ge=1)
    """Rows aimed at per chunk; also the most that is read again after a failure."""
    parallel: int = Field(2, ge=1, le=256)
    """Chunks read at once, each over its own connection: never more connections than this read rows."""
    rows_per_second: int = Field(0, ge=0)
    """Rows of all chunks together, kept to by waiting between chunks; 0: no limit."""
    bytes_per_second: Bytes = 0
    """The same in bytes that the server sends."""
    load: LoadConfig = LoadConfig()
    hosts: list[str] = Field([])
    """Replicas `host:port` of the source that chunks are read from in its stead (MySQL with GTIDs)."""
    watermark_table: TableName | None = None
    """A table `database.table` that chunk readers write to: how a chunk finds its place in the log of a MySQL
    without GTIDs. docs/delivery.md has its definition."""
    pause_when_behind: Bytes = 1024**3
    """No new chunk is read while more than this much log waits to be applied."""
    window_bytes_max: Bytes = Field(512 * 1024**2, ge=1024**2)
    """A chunk is read again when more log of its table than this has come since it was read: to place it,
    that log is searched for newer rows. Tables that change faster need more, or smaller chunks."""

    @model_validator(mode="after")
    def _addresses(self) -> SnapshotConfig:
        _check_addresses(self.hosts)
        return self


class RestConfig(Section):
    """Signals over HTTP, for whoever has the token. There is no TLS: an address that others reach belongs
    behind a proxy that has it."""

    listen: str = "127.0.0.1:8190"
    """host:port; port 0 is any free one, which `penstock status` shows."""
    token: str = Field(repr=False)
    """At least 16 characters. Better `${NAME}`, from the environment."""

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            raise ValueError(
                f"{value!r} is not an address; write it as host:port, for example 127.0.0.1:8190"
            )
        return value

    @field_validator("token")
    @classmethod
    def _long(cls, value: str) -> str:
        if not re.fullmatch(r"[!-~]{16,}", value):
            raise ValueError("a token has at least 16 characters, of printable ASCII without spaces")
        return value

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


class SignalsConfig(Section):
    """Ways on which signals come, besides `penstock signal` and Python."""

    file: Path | None = None
    """A file to which signals are appended, one JSON object a line; answers go to FILE.answers."""
    table: TableName | None = None
    """A table `database.table` of the source with the columns id, type and data: each inserted row is a
    signal. Nothing is written to it."""
    rest: RestConfig | None = None
    """A server in the running pipeline."""
    keep: int = Field(1000, ge=1)
    """Signals that have ended are kept up to this many: so long their answers can be read, and an id that is
    sent again is known."""
    keep_age: Milliseconds = 30 * 86_400_000
    """Signals that have ended are kept this long, if `keep` does not end it before."""
    waiting_max: int = Field(10_000, ge=1)
    """While so many signals are accepted and not yet ended, no more are taken: HTTP answers 503, the file and
    the table are read later, commands are refused."""


class RetriesConfig(Section):
    """Work that fails and is tried again: a step of an epoch, a chunk of a snapshot, the Spark query. Nothing
    here limits how long a source that does not answer is waited for (`source.reconnect_max` says how often),
    and an error that cannot pass is never tried again."""

    attempts_max: int = Field(5, ge=1)
    """Attempts at one step or one chunk that fail for a reason Penstock does not know. Then a step ends the
    Spark query, which is started again; a chunk ends the run."""
    wait_max: Milliseconds = Field(10_000, ge=1)
    """Longest wait between two attempts. The first is 0.4 s (chunks) or 1 s (steps), and each further one is
    twice as long."""
    restarts_max: int = Field(5, ge=0)
    """The Spark query is started again this many times without an applied epoch in between. Then its error
    ends the run."""

    def schedule(self, first_s: float) -> Schedule:
        """Of the waits between attempts."""
        return Schedule(first_s, self.wait_max / 1000, jitter=0.25)


class EpochConfig(Section):
    """An epoch is a range of the log that is applied to the targets as one step."""

    bytes_max: Bytes = 512 * 1024**2
    """Log bytes of one epoch. Soft: an epoch holds whole transactions, at least one."""
    interval: Milliseconds = 200
    """Shortest time between the plans of two epochs, so that small commits gather."""
    tables_parallel: int = Field(4, ge=1, le=256)
    """Tables of one epoch written at once."""
    task_bytes: Bytes = Field(64 * 1024**2, ge=64 * 1024)
    """Log bytes of one table that one Spark task lists at once; half of it for a change log, whose rows are
    written as they come. Smaller needs less memory in each task and makes more of them."""
    driver_bytes_max: Bytes = 16 * 1024**2
    """Log bytes (or bytes of snapshot rows) of one table that the driver decodes and writes itself, where the
    sink can do without a Spark job; it holds so much of `tables_parallel` tables. 0 leaves all to Spark: less
    memory in the driver, and a job of some 0.1 s for each table of an epoch."""
    cascade_rows_max: int = Field(200_000, ge=1)
    """`cascades: apply`: rows of a table that refers to itself, and changes of its parents, that one epoch
    may follow; a tenth of it where a foreign key may change the table's own key. The driver holds them. If
    there are more, the table is read again."""


class SparkConfig(Section):
    """The Spark application that a pipeline is."""

    master: str = "local[*]"
    """Where Spark runs: `local[*]` is this process, with all its cores; or the address of a cluster."""
    app_name: str = "penstock"
    """The application's name on Spark's pages and in its logs."""
    driver_memory: str = "2g"
    """Heap of the driver's JVM, as Spark writes it: `512m`, `2g`."""
    start_timeout: Milliseconds = 120_000
    """How long a cluster may take to answer, and to run a first small task. Longer for clusters that start
    machines on demand."""
    conf: dict[str, str] = Field({})
    """Further Spark options by name. Every value is a text: put numbers in quotes."""


class SchemaConfig(Section):
    """What becomes of changes of definitions, and of changes that the log does not tell."""

    changes: Literal["evolve", "ignore", "fail"] = "evolve"
    """Columns changed: the target follows; it keeps the columns it has (what is new is left out, what is gone
    becomes NULL, what was renamed goes on under its old name); or the table is parked."""
    rereads: Literal["resnapshot", "keep", "fail"] = "resnapshot"
    """A statement changed rows and the log does not tell how, or the log does not fit what is known of the
    table: it is read again; the target stays as it is; or the table is parked."""
    rereads_max: int = Field(3, ge=1)
    """A table is read again by itself for one and the same reason this many times in 24 hours. Then it is
    parked until somebody asks for it: reading a large table again and again would help nobody."""
    narrowing: Literal["keep", "rewrite"] = "keep"
    """A column's type became narrower: the target keeps the wider one, which holds every value and costs
    nothing; or its rows are rewritten in the new type."""
    dropped_tables: Literal["keep", "drop"] = "keep"
    """DROP TABLE: the target stays as it was; or it goes too. A change log always stays."""
    history_table: str | None = Field("penstock.{pipeline}_schema_history", pattern=r"^[^.]+\.[^.]+$")
    """A table at the target that is told of every change of a definition, named as a source table
    `database.table` would be; `{pipeline}` is the pipeline's name. null: none. The console has none."""
