"""The protocols of sinks. A sink makes changes durable in *targets*, one for each source table.

`Sink` is what all sinks have in common. Every sink is also one of three kinds: a `ChangeSink` stores each
change, a `TableSink` keeps a copy of each source table, and a `LogSink` takes whole epochs, over all tables,
as messages of a format. A sink whose targets can be read back is `Readable`, too. Callers test for these
protocols with `isinstance`.

Every write carries a `Commit`, which the sink records in the target's own transaction. If the target has
recorded this commit, or a later one of the same pipeline, the write changes nothing and returns False. So
after a kill, an epoch is run again from its first step. Methods may be called from several threads at once
for different tables. For one table, the caller makes one call at a time, in the order of the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from penstock.errors import ConfigError, InternalError
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock._core import EncodedMessages
    from penstock.sinks.rows import Rows
    from penstock.sinks.schema_registry import RegistryOptions

PIPELINE = "penstock.pipeline"
"""Property of a target: the uuid of the pipeline that created it."""
SOURCE = "penstock.source"
"""Property of a target: the source table for which it was created."""
FORMAT = "1"
"""Version of the table properties and marker files that sinks write beside the rows."""

COMPLETE_UNTIL = "penstock.complete_until"
"""Property of a target: what was committed at the source up to this time is in it."""

SHARDS_BY = "penstock.shards_by"
"""Property of a target that several source tables share: the column that tells their rows apart."""


GENERATION = "penstock.generation"
"""Property of a target: the generation of the driver for which it was fenced (`Fencing`)."""


@dataclass(frozen=True, order=True)
class Commit:
    """The idempotence key of one write. The writes to one table in one epoch are steps 0, 1, 2 …"""

    pipeline: str
    epoch: int
    step: int = 0
    source: str = ""
    """The source table, in a target that several tables share: each has its own commits there. Else empty."""
    complete_until: str | None = field(default=None, compare=False)
    """The property `COMPLETE_UNTIL` of the target after the write, for sinks that can set it with the rows.
    Empty: none. None: as before."""

    def __str__(self) -> str:
        source = f"/{self.source}" if self.source else ""
        return f"{self.pipeline}/{self.epoch}/{self.step}{source}"

    @classmethod
    def parse(cls, text: str) -> Commit:
        pipeline, epoch, step, *source = text.split("/", 3)
        return cls(pipeline, int(epoch), int(step), *source)

    @property
    def place(self) -> tuple[int, int]:
        return (self.epoch, self.step)


@dataclass(frozen=True)
class Missing:
    """There is no target yet. `create` it."""


@dataclass(frozen=True)
class Ours:
    """A target this pipeline created."""

    last_commit: Commit | None
    columns: tuple[str, ...]
    """The source's columns, without those that Penstock adds."""
    empty: bool
    """True only if the target certainly holds no rows."""
    lost_columns: tuple[str, ...] = ()
    """Columns that this pipeline has made and somebody else has removed."""


@dataclass(frozen=True)
class Foreign:
    """Something that this pipeline must not touch is in the target's place."""

    place: str
    reason: str
    cure: str
    adoptable: bool = False
    """The sink's options permit to take it over with its rows (`Adopting`), if its definition fits."""
    owner: str | None = None
    """The uuid of the pipeline that created it, if it is the target of another one."""

    def error(self, table: TableId) -> ConfigError:
        return ConfigError(
            f"The target of {table}, {self.place}, is taken: {self.reason}.",
            hint=self.cure,
            table=str(table),
            target=self.place,
        )


@dataclass(frozen=True)
class Compacted:
    """Number of a target's data files before and after."""

    before: int
    after: int
    orphans: int = 0
    """Files removed that no version of the target names."""


TargetState = Missing | Ours | Foreign


Narrowing = Literal["keep", "rewrite"]
"""What happens to a target's column whose type became narrower at the source. `keep`: it keeps its wider
type, which also holds every value of the narrower one. `rewrite`: its rows are converted."""


@dataclass(frozen=True)
class EvolvedColumn:
    """A column of the source after a schema change: `field` is its new name and type.

    `before` is the column's name in the target so far. None: the column is new, and existing rows get
    `default`, a constant in Spark SQL (None: NULL). `refills`: every row will be written again, so if the
    target has no column `before`, a new one is added; without `refills`, that is an error.
    """

    field: pa.Field
    before: str | None = None
    default: str | None = None
    refills: bool = False
    key: int = 0
    """The column's place in the table's key, from 1. 0: it is not part of the key."""


@runtime_checkable
class Sink(Protocol):
    """What every sink offers. Each is also a `ChangeSink`, a `TableSink` or a `LogSink`; `SinkKind` says
    which."""

    def check(self) -> None:
        """Raises `ConfigError` if the sink cannot work with its options. Called before any other method."""

    def open(self, table: TableId) -> TargetState:
        """Looks at the place of the table's target. Changes nothing."""

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        """Creates the target and its namespace, with the source's columns in `arrow`; columns that Penstock
        adds may be among them. Does nothing if this pipeline has created the target already.

        Raises `ConfigError` if something else is in its place, and `TableError` if it is the target of
        another table or cannot have columns of these names.
        """

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        """A `TableSink` deletes all rows of the table. A `ChangeSink` adds one change of type `truncate`,
        with this sequence and commit time."""

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        """Gives the target these columns, in this order. A `TableSink` drops all others with their values. In
        a `ChangeSink`, changes that were written before stay readable. If the process is killed during the
        call, the call is made again."""

    def close(self) -> None:
        """Ends background work. Called before the Spark session is stopped."""


@runtime_checkable
class ChangeSink(Sink, Protocol):
    """Stores every change, in the order of the log. Tables need no key."""

    @property
    def before_images(self) -> bool:
        """Whether it also wants the row before each update (change type `update_preimage`)."""

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        """Adds changes, in the layout `changelog`."""


@runtime_checkable
class TableSink(Sink, Protocol):
    """Keeps a copy of each source table: one row per key, with the `_sequence` of the row's newest change."""

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        """Adds rows, in the layout `latest`. The target has no row with any of their keys. Rows marked as
        deleted are left out."""

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Merges rows by key, in the layout `latest`, one row per key. A row counts if its `_sequence` is
        greater than that of the target's row: it replaces that row, or deletes it if it is marked as deleted.
        Rows may lack columns (`rows.incomplete`); these keep the values of the target's row."""

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        """Deletes rows whose `_sequence` is below `sequence`: those that a resnapshot did not find again."""

    def drop(self, table: TableId) -> None:
        """Removes the target with its rows. Does nothing if it is missing, not ours, or another table's."""

    def clear(self, table: TableId) -> None:
        """Removes a target that this pipeline has created, even if it is damaged and cannot be opened. Raises
        `ConfigError` if it can be opened and belongs to somebody else."""

    def identity(self, table: TableId) -> str | None:
        """An identifier that the target keeps when it is renamed. None: there is no target, or the sink
        cannot rename it; then no `Move` names it."""

    def move(self, moves: Sequence[Move]) -> list[Move]:
        """Renames targets, all of `moves` together: names may be swapped. A target that has one of the new
        names and is not moved itself is removed. If the process is killed during the call, the call is made
        again. Returns the moves whose targets were not found, or whose new place is that of another table."""

    def compact(self, table: TableId) -> Compacted:
        """Rewrites files so that the target is cheaper to read. Changes no row. Other writes may go on
        meanwhile."""


@runtime_checkable
class VersionSink(TableSink, Protocol):
    """A `TableSink` that keeps every version of some tables' rows. For these, `write_versions` takes the
    place of `append` and `merge`."""

    def write_versions(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Adds changes, in the layout `changelog` with the row before each update."""

    def read_whole(self, table: TableId) -> DataFrame:
        """All versions of all rows. `read` returns the present rows."""


Subject = TableId | Literal["definitions"] | None
"""What a message is about: rows of a table, definitions of tables (for a topic of their own), or None: the
begin or the end of a transaction."""
DEFINITIONS: Final = "definitions"

LogMessage = tuple[Subject, bytes | None, bytes | None, int]
"""A message of a format: what it is about, its key, its value (None: a tombstone), and the offset of the
change in the log."""

Route = tuple[str, list[str] | None]
"""How the core finds the partition of a message: by `key`, `columns`, `canal`, `canal-database` or
`transaction`, and the names of columns (None: those of the key)."""


@dataclass(frozen=True)
class EncodedBatch:
    """Messages in the core's memory. `tables`: the tables, by their numbers there. Messages of a table before
    its offset in `starts` do not count."""

    encoded: EncodedMessages
    tables: Sequence[TableId]
    starts: Mapping[TableId, int] = field(default_factory=dict)


@runtime_checkable
class LogSink(Sink, Protocol):
    """Takes whole epochs as messages, in the order of the log. Tables need no key. `create`, `truncate` and
    `evolve` are never called: an epoch has messages for what its statements did, where the format has any."""

    @property
    def format(self) -> str:
        """Name of the format of the messages (docs/formats.md)."""

    @property
    def format_options(self) -> str:
        """The format's options, as JSON."""

    @property
    def registry(self) -> RegistryOptions | None:
        """The schema registry, for formats that need one."""

    @property
    def tells_definitions(self) -> bool:
        """Whether it wants messages of changed definitions."""

    def subject_of(self, table: TableId) -> Subject:
        """The subject of a message about a changed definition of the table. It decides the topic."""

    def topic_of(self, table: TableId | None) -> str:
        """Name of the topic of a table's messages, and of those about transactions (None)."""

    def route_of(self, table: TableId) -> Route | None:
        """How the partition of a table's messages is found, if not by their keys alone. Valid only while
        `write_epoch` takes messages."""

    def write_epoch(
        self,
        commit: Commit,
        tables: Sequence[TableSchema],
        messages: Iterable[Sequence[LogMessage] | EncodedBatch],
        note: str = "",
    ) -> str | None:
        """Makes the messages durable, together with the commit and a note, all or none. Returns None. If this
        commit or a later one is recorded, takes no message, and returns the note of the newest one. `tables`:
        those that have messages.

        Raises `TableError` if a message of a table cannot be written. Then nothing of the epoch is durable,
        and it can be written again without that table. Errors of `messages` are passed on in the same way.
        """


@runtime_checkable
class Adopting(Protocol):
    """A `TableSink` that can take over tables of others, with their rows."""

    def differences(self, schema: TableSchema, arrow: pa.Schema, *, rows: bool) -> list[str]:
        """Why the table at the target's place, which is `Foreign.adoptable`, cannot be taken over. Empty: it
        can. `rows`: looks at the rows, too, which reads the columns of the key."""

    def adopt(self, schema: TableSchema, arrow: pa.Schema) -> None:
        """Makes the table at the target's place this pipeline's, so that it is `Ours` afterwards. Its rows
        stay, and count as older than every change. Does nothing if it is ours already. If there is none any
        more, an empty one is created.

        Raises `ConfigError` if it cannot be adopted, and `TableError` if it does not fit.
        """


@runtime_checkable
class Fencing(Protocol):
    """A sink whose targets refuse an earlier driver of the same pipeline, which was suspended or cut off and
    does not know that it was replaced (`runtime/driver_lease.py`)."""

    def begin(self, generation: int) -> None:
        """Says which driver this is. From now on it refuses, with `DriverReplaced`, to write to targets that
        are fenced for a later one."""

    def fence(self, table: TableId) -> None:
        """Makes writes of rows to the target fail that an earlier driver has begun, or begins later. Does
        nothing if there is no target of this pipeline."""


@runtime_checkable
class Renaming(Protocol):
    """A sink whose targets may have other names than their tables (`transforms`)."""

    def name_of(self, table: TableId) -> TableId: ...


@runtime_checkable
class Readable(Protocol):
    """A sink whose targets Spark can read back. `penstock verify`, `penstock query` and `cascades: apply`
    need it."""

    def version(self, table: TableId) -> str | None:
        """The target's present version, for `read`. None: it has none yet."""

    def hold(self, table: TableId) -> str | None:
        """The target's present version, kept readable for a day. Older versions may expire meanwhile."""

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        """The target's rows, now or at a version."""


@runtime_checkable
class Lasting(Readable, Protocol):
    """A sink that tells a target from an earlier one of the same name. `views` need it."""

    def target_id(self, table: TableId) -> str:
        """An identifier that the target keeps for its life. One that is created again has another one, even
        if its versions have the names of earlier ones."""


class Scan(Protocol):
    """Reads targets as they are when it begins. It takes memory for some thousand rows."""

    @property
    def isolated(self) -> bool:
        """Whether it continues to see the same rows while others write."""

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows, with these columns in these types. May be called several times.

        Raises `TableError` if the target is not this pipeline's, if it lacks a column, or if a value does
        not fit its type: nothing is changed or left out to make it fit."""


@runtime_checkable
class Scannable(Protocol):
    """A `TableSink` whose targets can be read only as they are now. `penstock verify` compares them while the
    pipeline waits."""

    def scan(self) -> AbstractContextManager[Scan]:
        """Begins to read."""


def table_sink(sink: Sink) -> TableSink:
    """The sink as a `TableSink`, for a plan that needs one."""
    if not isinstance(sink, TableSink):
        raise InternalError("A plan for a TableSink reached a sink that keeps no tables.")
    return sink


def change_sink(sink: Sink) -> ChangeSink:
    """The sink as a `ChangeSink`, for a plan that needs one."""
    if not isinstance(sink, ChangeSink):
        raise InternalError("A plan for a ChangeSink reached a sink that takes no changes.")
    return sink


def log_sink(sink: Sink) -> LogSink:
    """The sink as a `LogSink`, for a plan that needs one."""
    if not isinstance(sink, LogSink):
        raise InternalError("Messages reached a sink that takes none.")
    return sink


def version_sink(sink: Sink) -> VersionSink:
    """The sink as a `VersionSink`, for a plan that needs one."""
    if not isinstance(sink, VersionSink):
        raise InternalError("Versions of rows reached a sink that keeps none.")
    return sink


def wants_before_images(sink: Sink) -> bool:
    """Whether rows in the layout `changelog` shall have the row before each update."""
    return isinstance(sink, VersionSink) or (isinstance(sink, ChangeSink) and sink.before_images)


def adopting(sink: Sink) -> Adopting:
    """The sink as an `Adopting`, for a plan that needs one."""
    if not isinstance(sink, Adopting):
        raise InternalError("A plan for an Adopting sink reached one that adopts no tables.")
    return sink


def readable(sink: Sink) -> Readable:
    """The sink as a `Readable`. Raises `ConfigError` if its targets cannot be read back."""
    if not isinstance(sink, Readable):
        raise ConfigError(
            "The targets of this sink cannot be read back.", hint="Use a sink with tables or files."
        )
    return sink


def lasting(sink: Sink | Readable) -> Lasting:
    """The sink as a `Lasting`. The configuration refuses `views` for other sinks."""
    if not isinstance(sink, Lasting):
        raise InternalError("The sink of views cannot tell a target from an earlier one.")
    return sink


def name_at_target(sink: Sink, table: TableId) -> TableId:
    return sink.name_of(table) if isinstance(sink, Renaming) else table


def version_of(sink: Sink, table: TableId) -> str | None:
    """The target's present version. None: it has none, or cannot be read back."""
    return sink.version(table) if isinstance(sink, Readable) else None
