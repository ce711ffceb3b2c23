"""What a sink is: where changes become durable, exactly once if it can.

`Sink` is what all have in common. A sink takes changes as they are (`ChangeSink`) or keeps tables as they are
at the source (`TableSink`); what it has may be read back (`Readable`). Whoever needs one of these asks for it
by `isinstance`.

Every write carries a `Commit`, which the sink records in the target's own transaction. A write whose commit
the target has recorded already, or a later one of the same pipeline, changes nothing and returns False: so a
killed epoch is simply run again from its first step. All methods may be called from several threads at once
for different tables; for one table the caller keeps steps in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import pyarrow as pa

from penstock.errors import ConfigError, InternalError
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.sinks.files import Rows

PIPELINE = "penstock.pipeline"
"""Property of a target: the uuid of the pipeline that made it."""
SOURCE = "penstock.source"
"""Property of a target: the table for which it was made."""
FORMAT = "1"
"""Version of what sinks write beside the rows (table properties, marker files)."""

SHARDS_BY = "penstock.shards_by"
"""The property of a target that several source tables have: the column that tells their rows apart."""


@dataclass(frozen=True, order=True)
class Commit:
    """The idempotence key of one write: several commits to one table in one epoch are steps 0, 1, 2 …"""

    pipeline: str
    epoch: int
    step: int = 0
    source: str = ""
    """The source table, in a target that several have: each has commits of its own there."""

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
    """Nothing is there: `create` it."""


@dataclass(frozen=True)
class Ours:
    """A target this pipeline created."""

    last_commit: Commit | None
    columns: tuple[str, ...]
    """Of the source, without the columns Penstock adds."""
    empty: bool
    """True only if it certainly holds no rows."""


@dataclass(frozen=True)
class Foreign:
    """The place is taken by something this pipeline must not touch."""

    place: str
    reason: str
    cure: str

    def error(self, table: TableId) -> ConfigError:
        return ConfigError(
            f"The target of {table}, {self.place}, is taken: {self.reason}.",
            hint=self.cure,
            table=str(table),
            target=self.place,
        )


@dataclass(frozen=True)
class Compacted:
    """Data files of a target before and after."""

    before: int
    after: int


TargetState = Missing | Ours | Foreign


Narrowing = Literal["keep", "rewrite"]
"""A column whose type became narrower at the source: the target `keep`s the wider one, which holds all the
other can, or is `rewrite`n."""


@dataclass(frozen=True)
class EvolvedColumn:
    """A column as the source has it from here on: `field` is its name and type.

    `before` is the name the target has it under; None: it is new, and rows that exist get `default`, a
    constant Spark SQL expression (None: NULL), as at the source. `refills`: every row is written again, so a
    target that lacks `before` gets a new column; else that is an error.
    """

    field: pa.Field
    before: str | None = None
    default: str | None = None
    refills: bool = False


@runtime_checkable
class Sink(Protocol):
    """What every sink offers. It is also a `ChangeSink` or a `TableSink`, as its registration says."""

    def check(self) -> None:
        """Raises `ConfigError` if the sink cannot be used as it is configured; called before any other
        method."""

    def open(self, table: TableId) -> TargetState:
        """What is at the place of the table's target. Changes nothing."""

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        """Creates the target, and its namespace, with the source's columns in `arrow` (of any layout).
        Nothing if the target is ours.

        `ConfigError` if something else is in its place; `TableError` if it is the target of another table, or
        cannot have columns of these names.
        """

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        """All rows of the table go. A `ChangeSink` adds one change of the type `truncate` with this sequence
        and commit time."""

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        """The table has these columns of the source from here on, in this order. In a `TableSink` others go,
        with their values; in a `ChangeSink` what was written before stays readable. Killed anywhere in it,
        the call is simply made again."""

    def close(self) -> None:
        """Ends what goes on in the background; to be called before the session is stopped."""


@runtime_checkable
class ChangeSink(Sink, Protocol):
    """Takes changes in the order of the log, as they are, and keeps what it has. It needs no key."""

    @property
    def before_images(self) -> bool:
        """It wants the row before an update, too (`update_preimage`)."""

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        """Adds changes; layout `changelog`."""


@runtime_checkable
class TableSink(Sink, Protocol):
    """Keeps the table as it is at the source: one row a key, and in it the `_sequence` of its newest
    change."""

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        """Adds rows that are known to collide with none of the target. Layout `latest`; deleted ones are left
        out."""

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Layout `latest`, one row per key: applied where newer than the target's `_sequence`; deletes
        remove. Rows that lack columns (`rows.present`) are completed by the target's, or left out."""

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        """Rows with `_sequence` below `sequence` go: the end of a snapshot taken again."""

    def drop(self, table: TableId) -> None:
        """Removes the target and all it holds; nothing if it is missing. Never of a target that is not
        ours."""

    def clear(self, table: TableId) -> None:
        """Removes what stands at the place of a target that this pipeline has made, also if it cannot be
        opened any more. `ConfigError` if it can, and is somebody else's."""

    def identity(self, table: TableId) -> str | None:
        """Tells the target from all others, wherever it is moved. None: there is none, or it cannot be moved;
        then no `Move` names it."""

    def move(self, moves: Sequence[Move]) -> list[Move]:
        """Gives targets other names, all of `moves` as one: names may be exchanged. What has a name that is
        taken, and is not moved itself, goes. Killed anywhere in it, the call is simply made again. Returns
        the moves whose targets are nowhere."""

    def compact(self, table: TableId) -> Compacted:
        """Writes files again so that the target is cheaper to read; changes no row. Writes may go on."""


@runtime_checkable
class Readable(Protocol):
    """What a sink offers whose targets can be read back through Spark. A `TableSink` must, for `verify`."""

    def version(self, table: TableId) -> str | None:
        """The present version of the target, for `read`; None while it has none."""

    def hold(self, table: TableId) -> str | None:
        """The present version, which can be read for a day from now on, whatever becomes of older ones."""

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        """The target now, or as it was at a version."""


def table_sink(sink: Sink) -> TableSink:
    """The sink of a plan that has steps for tables."""
    if not isinstance(sink, TableSink):
        raise InternalError("A plan for a TableSink reached a sink that keeps no tables.")
    return sink


def change_sink(sink: Sink) -> ChangeSink:
    """The sink of a plan that has steps for changes."""
    if not isinstance(sink, ChangeSink):
        raise InternalError("A plan for a ChangeSink reached a sink that takes no changes.")
    return sink


def readable(sink: Sink) -> Readable:
    """The sink of whoever needs to read targets. Raises `ConfigError` if it cannot be read back."""
    if not isinstance(sink, Readable):
        raise ConfigError(
            "What this sink has written cannot be read back.", hint="Use a sink with tables or files."
        )
    return sink


def version_of(sink: Sink, table: TableId) -> str | None:
    """The present version of a target; None: it has none, or cannot be read back."""
    return sink.version(table) if isinstance(sink, Readable) else None
