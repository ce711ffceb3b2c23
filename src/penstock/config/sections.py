"""The sections of a pipeline file: every option of each, its default, its unit and its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from penstock.backoff import Schedule
from penstock.model.name import split_name
from penstock.model.section import Section, TableName
from penstock.model.units import Bytes, Milliseconds
from penstock.secret import Secret
from penstock.store.errors import StoreRefused
from penstock.store.location import Location


def url_of(place: str) -> str:
    """The URL of a store at a directory or URL."""
    return place if "://" in place else Path(place).resolve().as_uri()


def check_addresses(addresses: list[str]) -> None:
    """Raises `ValueError` unless each is `host:port`."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{address!r} is not an address; write it as host:port")


def spread_hosts(value: Any, port: int) -> Any:
    """The fields of a source with a list in `host`: the first is `host` and `port`, the others are
    `failover`. `port`: the default. Other values are returned as they are."""
    if not isinstance(value, dict) or not isinstance(value.get("host"), list):
        return value
    port = value.get("port", port)
    addresses = [str(item) if ":" in str(item) else f"{item}:{port}" for item in value["host"]]
    if not addresses:
        raise ValueError("`host` names no server")
    host, _, first_port = addresses[0].rpartition(":")
    return {**value, "host": host, "port": first_port, "failover": addresses[1:]}


HOST_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
"""JSON Schema of an option that is a host or a list of them."""


def check_place(place: str | None) -> str | None:
    """Raises `ValueError` for a URL that cannot be that of a store. A directory passes."""
    if place is not None and "://" in place:
        try:
            Location.parse(place)
        except StoreRefused as error:
            raise ValueError(f"{error.message} {error.hint}") from None
    return place


class RelayLogConfig(Section):
    """The copy of the source's log on local disk, from which everything else reads."""

    path: Path | None = None
    """Directory. None: `relay` inside the pipeline's state directory. Pipelines of one source may share
    it."""
    segment_size: Bytes = 256 * 1024**2
    """A segment file is closed at the first transaction end after this size."""
    segment_age: Milliseconds = 3_600_000
    """A segment file is closed at the first transaction end after this age."""
    span_size: Bytes = 4 * 1024**2
    """Bytes of log per index entry of a closed segment: the granularity of parallel decoding."""
    flush_interval: Milliseconds = 5
    """Longest time that committed bytes wait for fsync while more arrive. An idle source is flushed at
    once."""
    keep_size: Bytes = 0
    """Total size up to which consumed segments are kept; 0: no limit by size."""
    keep_age: Milliseconds = 7 * 86_400_000
    """How long consumed segments are kept. Unread segments are never deleted."""
    archive: str | None = None
    """Directory, or URL of an object store such as `s3://bucket/path`, to which the receiver copies each
    closed segment. The directory `path` is then a cache. A receiver whose disk is lost goes on from the
    archive, and executors of other machines read from it. `keep_size` and `keep_age` hold for the archive.
    Each relay log needs an archive of its own. The section `store` says how it is reached."""
    cache_size: Bytes = 4 * 1024**3
    """With `archive`: total size of closed segments that also stay on the local disk. Segments that are not
    archived yet always stay."""
    disk_free_min: Bytes = 256 * 1024**2
    """The receiver waits while the file system has less free space than this."""
    catch_up_timeout: Milliseconds = Field(24 * 3_600_000, ge=1)
    """How long a starting run waits until the receiver has written the log up to the source's end. Only then
    are the tables' definitions known. Raise it if the receiver may have a backlog of more than a day. After
    this time the run ends with an error."""

    _archive_is_place = field_validator("archive")(check_place)

    @property
    def archive_url(self) -> str | None:
        """The URL of the archive's store."""
        return None if self.archive is None else url_of(self.archive)


_PATTERNS_SCHEMA = {"type": "array", "items": {"type": "string"}, "minItems": 1}


class TablesConfig(Section):
    """Which tables are captured. A plain list of names means `include`."""

    shorthands: ClassVar[list[dict[str, Any]]] = [{"type": "string"}, _PATTERNS_SCHEMA]

    include: list[str] = Field(min_length=1)
    """Names `database.table`; `*` and `?` are wildcards in either part. Put a database whose name has dots
    in backticks, `` `a.b`.* ``; there are no wildcards inside backticks."""
    exclude: list[str] = Field([])
    """Names in the same form. A table that matches one of them is not captured, whatever `include` says."""

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
    """Limits of load: no chunk is started while one is exceeded. Checked about once a second."""

    threads_running_max: int | None = Field(None, ge=1)
    """Maximum Threads_running of the server that chunks are read from: all running statements, including
    Penstock's own."""
    replica_lag_max: Milliseconds | None = None
    """Maximum lag of each server in `replicas`."""
    replicas: list[str] = Field([])
    """Servers `host:port` whose lag is checked, with the account of the source."""

    @model_validator(mode="after")
    def _together(self) -> LoadConfig:
        check_addresses(self.replicas)
        if (self.replica_lag_max is None) == bool(self.replicas):
            raise ValueError("`replica_lag_max` needs `replicas`, and `replicas` needs `replica_lag_max`")
        return self


class SnapshotConfig(Section):
    """The first read of the tables, and how much load it may cause."""

    mode: Literal["initial", "never", "only"] = "initial"
    """`initial`: tables are read and then followed. `never`: only changes from now on arrive. `only`: the
    run ends when the tables have been read. Another choice later concerns tables that are found from then on:
    `penstock resnapshot` reads the rows of those that are followed already."""
    chunk_rows: int = Field(50_000, ge=1)
    """Intended rows per chunk, and the most that is read again after a failure."""
    parallel: int = Field(2, ge=1, le=256)
    """Chunks read at the same time, each over its own connection. No other connections read rows."""
    rows_per_second: int = Field(0, ge=0)
    """Limit of rows per second, for all chunks together. Penstock pauses between chunks to stay below it. 0:
    no limit."""
    bytes_per_second: Bytes = 0
    """The same limit in bytes that the server sends."""
    load: LoadConfig = LoadConfig()
    hosts: list[str] = Field([])
    """Replicas or standbys `host:port` of the source to read chunks from instead of the source.
    docs/operations.md and docs/postgresql.md list the requirements."""
    pause_when_behind: Bytes = 1024**3
    """No chunk is started while more log than this waits to be applied."""
    window_bytes_max: Bytes = Field(512 * 1024**2, ge=1024**2)
    """Limit of the log of a table between the read of a chunk and its placement. That log is searched for
    newer rows. If there is more of it, the chunk is read again. Tables that change fast need a higher limit
    or smaller chunks."""
    append_bytes_max: Bytes = 128 * 1024**2
    """The first chunks of a table are appended to its empty target while the table's log since its start is
    not larger than this, and its columns have not changed in it. Later chunks are merged. Each appended chunk
    is compared with all of that log, so a merge is cheaper if there is more of it. 0: chunks are appended
    only if there is no such log."""

    @model_validator(mode="after")
    def _addresses(self) -> SnapshotConfig:
        check_addresses(self.hosts)
        return self


class SignalTopicConfig(Section):
    """A topic of Kafka with signals, as Debezium's."""

    bootstrap: str
    """Addresses of some brokers: `host:9092,host:9092`."""
    topic: str = Field(min_length=1)
    """Name of the topic, which has one partition. A message whose key is the pipeline's name is a signal:
    `{"id", "type", "data"}`. A new pipeline begins at the end of the topic."""
    client: dict[str, Secret] = Field(default_factory=dict)
    """Settings of the client (librdkafka's `CONFIGURATION.md`), such as `sasl.password`. Their values are not
    shown anywhere."""


class NotificationsConfig(Section):
    """Topics of Kafka to which a running pipeline sends notifications about snapshots, and heartbeats, as
    Debezium does (docs/signals.md)."""

    bootstrap: str
    """Addresses of some brokers: `host:9092,host:9092`."""
    topic: str | None = Field(None, min_length=1)
    """Name of the topic of notifications. Their key is the pipeline's name. None: there are none."""
    heartbeat_interval: Milliseconds = 0
    """Time between two heartbeats. 0: there are none."""
    heartbeat_topic: str = Field("__debezium-heartbeat.{name}", min_length=1)
    """Name of the topic of heartbeats. `{name}` is the pipeline's name."""
    client: dict[str, Secret] = Field(default_factory=dict)
    """Settings of the client (librdkafka's `CONFIGURATION.md`), such as `sasl.password`. Their values are not
    shown anywhere."""


class SignalsConfig(Section):
    """Channels for signals, besides `penstock signal`, Python and `http`."""

    file: Path | None = None
    """A file to which signals are appended, one JSON object per line. Answers go to FILE.answers."""
    table: TableName | None = None
    """A table `database.table` of the source with the columns id, type and data: each inserted row is a
    signal. Nothing is written to it."""
    kafka: SignalTopicConfig | None = None
    """A topic of Kafka."""
    keep: int = Field(1000, ge=1)
    """Number of ended signals that are stored. Their answers can be read, and an id that is sent again is
    recognised."""
    keep_age: Milliseconds = 30 * 86_400_000
    """How long ended signals are stored, if `keep` allows."""
    waiting_max: int = Field(10_000, ge=1)
    """While this many signals have not ended, no more are accepted: HTTP answers 503, the file and the
    table are read later, commands are refused."""


class RetriesConfig(Section):
    """Work that fails and is retried: a step of an epoch, a chunk of a snapshot, the Spark query. How long to
    wait for a source that does not answer is another option (`source.reconnect_max`). Errors that will not go
    away are never retried."""

    attempts_max: int = Field(5, ge=1)
    """Attempts at one step or chunk that fails for an unknown reason. After that its table is parked, if the
    error depends on that table alone. Else a step ends the Spark query, which is restarted; a chunk ends the
    run."""
    wait_max: Milliseconds = Field(10_000, ge=1)
    """Longest wait between two attempts. The first wait is 0.4 s (chunks) or 1 s (steps), and each further
    one is twice as long."""
    restarts_max: int = Field(5, ge=0)
    """How often the Spark query is restarted without an applied epoch in between. After that its error
    ends the run."""

    def schedule(self, first_s: float) -> Schedule:
        """How long to wait between attempts."""
        return Schedule(first_s, self.wait_max / 1000, jitter=0.25)


class EpochConfig(Section):
    """An epoch is a range of the log that is applied to the targets as one step."""

    bytes_max: Bytes = 512 * 1024**2
    """Log bytes of one epoch. A soft limit: an epoch has at least one whole transaction."""
    interval: Milliseconds = 200
    """Shortest time between the plans of two epochs, so that small commits are collected."""
    tables_parallel: int = Field(4, ge=1, le=256)
    """Tables of one epoch that are written at the same time."""
    task_bytes: Bytes = Field(64 * 1024**2, ge=64 * 1024)
    """Log bytes of one table that one Spark task lists at once; half of it for a change log, whose rows are
    written as they come. A smaller value means more tasks, and less memory in each."""
    driver_bytes_max: Bytes = 64 * 1024**2
    """Log bytes of one table that the driver decodes and writes itself, if the sink can write without a Spark
    job. For each of `tables_parallel` tables, the driver needs about this much memory. 0: Spark writes
    everything. That needs less memory in the driver, and a job of about 0.1 s, and often half as much CPU
    time again, for each table of an epoch. Of a snapshot's rows, the driver writes at most 16 MiB."""
    snapshot_rows_max: int = Field(150_000, ge=1)
    """Rows of snapshot chunks that one epoch writes to a table while it also has changes of other tables,
    which wait for the epoch's end. At least one chunk is written. A higher value makes snapshots faster. A
    lower one shortens the lag of the other tables."""
    cascade_rows_max: int = Field(200_000, ge=1)
    """For `cascades: apply`: how many rows of a table that refers to itself, and changes of its parents, one
    epoch may follow in the driver's memory. The limit is a tenth of it if a foreign key may change the
    table's own key. If there are more, the table is read again."""


class CompletenessConfig(Section):
    """A table at the target that says up to which time each target is complete (docs/completeness.md)."""

    table: str | None = Field(None, pattern=r"^[^.]+\.[^.]+$")
    """Name of the table, like a source table: `database.table`, for example `penstock.{pipeline}_complete`.
    `{pipeline}` is the pipeline's name. null: there is none. It needs a sink with tables."""
    interval: Milliseconds = Field(60_000, ge=1000)
    """How often it is written. Each time is a commit of the table and two questions to the source."""


class VerifyConfig(Section):
    """How long `penstock verify` waits for a running pipeline."""

    hold_timeout: Milliseconds = Field(60_000, ge=1)
    """How long the pipeline may take to stop planning for a moment. It does so between two epochs, so raise
    this if one epoch takes longer."""
    apply_timeout: Milliseconds = Field(900_000, ge=1)
    """How long the pipeline may take to apply the log up to the place of the comparison. It must catch up
    with all of its lag, so raise this for a pipeline that is far behind."""


FIXED_OF_SPARK = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # A value outside its type is a bug of Penstock and must not become NULL.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # Statements contain names and values of the source, in which `${env:HOME}` is plain text.
    "spark.sql.variable.substitute": "false",
    # A view that is computed whole replaces all of its rows, also those of partitions that it lost.
    "spark.sql.sources.partitionOverwriteMode": "static",
}
"""Options of each session of Spark, which decide what values, names and statements mean. `spark.conf` cannot
change them."""


class SparkConfig(Section):
    """The Spark application in which the pipeline runs."""

    master: str = "local[*]"
    """Where Spark runs: `local[*]` is this machine with all its cores; or the address of a cluster."""
    app_name: str = "penstock"
    """The application's name on Spark's pages and in its logs."""
    driver_memory: str = "2g"
    """Heap of the driver's JVM, as Spark writes it: `512m`, `2g`."""
    start_timeout: Milliseconds = 120_000
    """How long a cluster may take to answer and to run a first small task. Raise it for clusters that
    start machines on demand."""
    environment: Literal["packed", "none"] = "packed"
    """Which Python packages tasks use on a cluster. `packed`: those of this process, which Spark brings to
    the workers. `none`: those that are installed there, for example in an image. They must be of the same
    release of Penstock."""
    conf: dict[str, str] = Field({})
    """Further Spark options by name. Every value is a text: put numbers in quotes. Those that decide what
    values mean are fixed, such as `spark.sql.session.timeZone`, which is UTC."""

    @field_validator("conf")
    @classmethod
    def _keeps_meanings(cls, value: dict[str, str]) -> dict[str, str]:
        for name, needed in FIXED_OF_SPARK.items():
            if value.get(name, needed).lower() != needed.lower():
                raise ValueError(f"{name} must be {needed} for a pipeline; leave it out")
        return value

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine."""
        return self.master.startswith("local")


class SchemaConfig(Section):
    """What to do about schema changes, and about changes of rows that are not in the log."""

    changes: Literal["evolve", "ignore", "fail"] = "evolve"
    """When columns change. `evolve`: the target follows. `ignore`: it keeps its columns; new ones are
    omitted, dropped ones become NULL, renamed ones keep their old name. `fail`: the table is parked."""
    rereads: Literal["resnapshot", "keep", "fail"] = "resnapshot"
    """When a statement changed rows and the log does not say how, or the log does not match the known
    definition. `resnapshot`: the table is read again. `keep`: the target stays as it is. `fail`: the table is
    parked."""
    rereads_max: int = Field(3, ge=1)
    """How often a table is read again automatically for the same reason in 24 hours. After that it is
    parked until an operator acts."""
    narrowing: Literal["keep", "rewrite"] = "keep"
    """When a column's type becomes narrower. `keep`: the target keeps the wider type, which can represent
    every value. `rewrite`: its rows are rewritten with the new type."""
    dropped_tables: Literal["keep", "drop"] = "keep"
    """After DROP TABLE. `keep`: the target stays. `drop`: it is dropped, too. A change log always stays."""
    history_table: str | None = Field("penstock.{pipeline}_schema_history", pattern=r"^[^.]+\.[^.]+$")
    """A table at the target with every schema change, named like a source table, `database.table`.
    `{pipeline}` is the pipeline's name. null: no table. The console has none."""
