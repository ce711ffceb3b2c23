"""What a sink is: where changes become durable, exactly once if it can.

Every write carries a `Commit`, which the sink records in the target's own transaction. A write whose commit
the target has recorded already, or a later one of the same pipeline, changes nothing and returns False: so a
killed epoch is simply run again from its first step. All methods may be called from several threads at once
for different tables; for one table the caller keeps steps in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa

from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, PRESENT, SEQUENCE
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.sinks.files import Rows

SOURCE = "penstock.source"
"""Property of a target: the table for which it was made."""
FORMAT = "1"
"""Version of what sinks write beside the rows (table properties, marker files)."""

ASIDE = "_penstock_next_"
"""Values of a column that is being converted wait under this name and its own until all of them are there."""

SHARDS_BY = "penstock.shards_by"
"""The property of a target that several source tables have: the column that tells their rows apart."""

OWN_COLUMNS = (SEQUENCE, DELETED, CHANGE_TYPE, COMMIT_TIMESTAMP, PRESENT)


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


class Sink(Protocol):
    """See the module's docstring for what holds of every write."""

    append_only: bool
    """It takes changes as they are (`write_changes`), also of tables without a key, and merges nothing."""

    def check(self) -> None:
        """Raises `ConfigError` if the sink's own path cannot be used; called before anything starts."""

    def open(self, table: TableId) -> TargetState: ...

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        """Creates the target, and its namespace, with the columns of `arrow` (any layout); nothing if it is
        ours.

        `ConfigError` if something else is in its place.
        """

    def drop(self, table: TableId) -> None:
        """Removes the target and all it holds; nothing if it is missing. Never of a target that is not
        ours."""

    def clear(self, table: TableId) -> None:
        """Removes what stands at the place of a target that this pipeline has made, also if it cannot be
        opened any more. `ConfigError` if it can, and is somebody else's."""

    def identity(self, table: TableId) -> str | None:
        """What tells the target from all others, wherever it is moved. None: there is none, or this sink
        cannot move targets."""

    def move(self, moves: Sequence[Move]) -> list[Move]:
        """Gives targets other names, all of `moves` as one: names may be exchanged. What has a name that is
        taken, and is not moved itself, goes. Killed anywhere in it, the call is simply made again. Returns
        the moves whose targets are nowhere."""

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        """Adds rows that are known to collide with none of the target. Layout `latest`; deleted ones are left
        out."""

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Layout `latest`, one row per key: applied where newer than the target's `_sequence`; deletes
        remove. Rows that lack columns (`rows.present`) are completed by the target's, or left out."""

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        """All rows go. An append-only sink writes one `truncate` row with this sequence and commit time."""

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        """Rows with `_sequence` below `sequence` go: the end of a snapshot taken again."""

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        """From here on the target has these columns of the source, in this order; others go, with their
        values. Killed anywhere in it, the call is simply made again."""

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        """Layout `changelog`; append-only sinks."""

    def version(self, table: TableId) -> str | None:
        """The present version of the target, for `read`; None while it has none."""

    def hold(self, table: TableId) -> str | None:
        """The present version, which can be read for a day from now on, whatever becomes of older ones."""

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        """The target now, or as it was at a version."""

    def compact(self, table: TableId) -> Compacted:
        """Writes files again so that the target is cheaper to read; changes no row. Writes may go on."""

    def close(self) -> None:
        """Ends what goes on in the background; to be called before the session is stopped."""


def namespace_levels(template: str, table: TableId) -> tuple[str, ...]:
    """The target's namespace. Dots of the template part levels, dots of the database's name do not."""
    return tuple(level.replace("{database}", table.database) for level in template.split("."))


def directory_name(name: str) -> str:
    """A table's or database's name as one path component. Letters, digits, `-`, `$` and inner `_` stay,
    others become `@` and their code point, in the manner of MySQL's own file names. Different names stay
    different."""

    def safe(place: int, character: str) -> bool:
        # A leading underscore or dot hides a directory from Spark and pyarrow.
        return character.isalnum() or character in "-$" or (character == "_" and place > 0)

    return "".join(c if safe(place, c) else f"@{ord(c):04x}" for place, c in enumerate(name))


def catalog_name(name: str) -> str:
    """A name as a catalog takes it: only what a catalog of directories would take apart is written as
    `directory_name` writes it."""

    def safe(place: int, character: str) -> bool:
        return character not in "/\\:@" and character >= " " and (character != "." or place > 0)

    return "".join(c if safe(place, c) else f"@{ord(c):04x}" for place, c in enumerate(name))


def source_columns(names: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in OWN_COLUMNS and not name.startswith(ASIDE))


def shape(shards_by: str | None) -> dict[str, str]:
    """Properties of a target that say whether it is of several source tables."""
    return {} if shards_by is None else {SHARDS_BY: shards_by}


def other_shape(place: str, held: str | None, wanted: str | None) -> Foreign | None:
    """A target that was made for one source table is none for several, and the other way round."""
    if held == wanted:
        return None

    def said(column: str | None) -> str:
        return "one table" if column is None else f"shards, told apart by its column {column}"

    cure = "Name another target in `merge_shards`, or drop this one if nobody needs it."
    return Foreign(place, f"it was made for {said(held)}, not for {said(wanted)}", cure)


def refuse_foreign(table: TableId, state: TargetState) -> None:
    if isinstance(state, Foreign):
        raise state.error(table)


def refuse_shared(table: TableId, place: str, source: str | None) -> None:
    """`source`: the table for which the target was made. Two tables in one target would mix their rows."""
    if source is not None and source != str(table):
        raise TableError(
            f"The target of {table}, {place}, is that of {source} already.",
            hint="Give them targets of their own by `{database}` in `sink.namespace`, or one for both by "
            f"`merge_shards` (docs/shards.md); then run `penstock resnapshot FILE {table}`.",
            table=str(table),
        )


def refuse_own_names(schema: TableSchema) -> None:
    for column in schema.columns:
        if column.name.lower() in OWN_COLUMNS:
            raise TableError(
                f"{schema.table} has a column `{column.name}`, a name that Penstock's own columns "
                "have at the target.",
                hint=f"Rename it, or leave {schema.table} out of the pipeline.",
                table=str(schema.table),
            )


def check_pipeline(commit: Commit, pipeline: str) -> None:
    if commit.pipeline != pipeline:
        raise InternalError(f"A commit of pipeline {commit.pipeline} reached the sink of {pipeline}.")


def is_recorded(commit: Commit, last: Commit | None) -> bool:
    return last is not None and commit.place <= last.place


def check_directory(path: Path) -> None:
    """A sink's own directory may be missing (it is made) or hold only directories of ours."""
    cure = "Give `sink.path` a directory of its own."
    try:
        path.mkdir(parents=True, exist_ok=True)
        entries = list(path.iterdir())
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"The sink's path {path} is a file.", hint=cure, path=str(path)) from None
    except OSError as error:
        raise ConfigError(
            f"The sink's path {path} cannot be used: {error.strerror}.", hint=cure, path=str(path)
        ) from error
    for entry in entries:
        table = entry.name in ("_delta_log", "_penstock.json") or any(entry.glob("*.metadata.json"))
        if table or (entry.is_file() and not entry.name.startswith(".")):
            raise ConfigError(
                f"The sink's path {path} holds something else: {entry.name}.", hint=cure, path=str(path)
            )


def append_only(name: str, method: str) -> InternalError:
    return InternalError(f"The {name} sink is append-only; {method} was called on it.")
