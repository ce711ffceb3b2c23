"""What a sink is: where changes become durable, exactly once if it can.

Every write carries a `Commit`, which the sink records in the target's own transaction. A write whose commit
the target has recorded already, or a later one of the same pipeline, changes nothing and returns False: so a
killed epoch is simply run again from its first step. All methods may be called from several threads at once
for different tables; for one table the caller keeps steps in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa

from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, PRESENT, SEQUENCE
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument

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
    different, and none is too long for a file system."""

    def safe(place: int, character: str) -> bool:
        # A leading underscore or dot hides a directory from Spark and pyarrow.
        return character.isalnum() or character in "-$" or (character == "_" and place > 0)

    return _component(name, safe)


def catalog_name(name: str) -> str:
    """A name as a catalog takes it: only what a catalog of directories would take apart is written as
    `directory_name` writes it."""

    def safe(place: int, character: str) -> bool:
        return character not in "/\\:@" and character >= " " and (character != "." or place > 0)

    return _component(name, safe)


_COMPONENT_BYTES_MAX = 255
"""Of a file's name, on every file system in use."""
_COMPONENT_BYTES_KEPT = 200


def _component(name: str, safe: Callable[[int, str], bool]) -> str:
    """What is too long for a file system ends in `@~` and a digest of the whole name: nothing else has that,
    since `@` itself is written as its code point."""

    def coded(character: str) -> str:
        code = ord(character)
        return f"@{code:04x}" if code < 0x10000 else f"@@{code:06x}"

    text = "".join(c if safe(place, c) else coded(c) for place, c in enumerate(name))
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= _COMPONENT_BYTES_MAX:
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{data[:_COMPONENT_BYTES_KEPT].decode('utf-8', 'ignore')}@~{digest}"


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


def target_names(namespace: str, table: TableId) -> tuple[str, ...]:
    """What tells a table's target from others: two tables with the same names would have one target."""
    return (*namespace_levels(namespace, table), table.table)


def shared_target(table: TableId, place: str, source: str) -> TableError:
    """`source`: the table for which the target was made. Two tables in one target would mix their rows."""
    return TableError(
        f"The target of {table}, {place}, is that of {source} already.",
        hint="Give them targets of their own by `{database}` in `sink.namespace`, or one for both by "
        f"`merge_shards` (docs/shards.md); then run `penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
    )


def refuse_shared(table: TableId, place: str, source: str | None) -> None:
    if source is not None and source != str(table):
        raise shared_target(table, place, source)


def same_key(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether shards with these keys can have one target."""
    return {name.lower() for name in one} == {name.lower() for name in other}


def other_key(shard: TableId, key: Sequence[str], table: TableId, held: Sequence[str]) -> TableError:
    return TableError(
        f"The key of {shard} is ({', '.join(key)}), that of {table}, which has the same target, "
        f"({', '.join(held)}).",
        hint="Give all shards of a table keys of the same columns, then run "
        f"`penstock resnapshot FILE {argument(shard)}`; or leave it out of `merge_shards`.",
        table=str(shard),
    )


def own_name(schema: TableSchema) -> TableError | None:
    """Why the names of a table's columns keep it from having a target."""
    return unfit_columns(schema.table, [column.name for column in schema.columns])


def refuse_own_names(schema: TableSchema) -> None:
    if (error := own_name(schema)) is not None:
        raise error


def refuse_columns(table: TableId, names: Sequence[str]) -> None:
    if (error := unfit_columns(table, names)) is not None:
        raise error


def unfit_columns(table: TableId, names: Sequence[str]) -> TableError | None:
    """Why a target cannot have columns of these names."""
    cure = f"or leave {table} out of the pipeline."
    known: dict[str, str] = {}
    for name in names:
        plain = _without_case(name)
        if plain in OWN_COLUMNS or plain.startswith(ASIDE):
            return TableError(
                f"{table} has a column `{name}`, a name that Penstock's own columns have at the target.",
                hint=f"Rename it, {cure}",
                table=str(table),
            )
        if plain in known:
            return TableError(
                f"{table} has the columns `{known[plain]}` and `{name}`, which are one name to Spark: it "
                "takes no account of letter case, in any script.",
                hint=f"Rename one of them, {cure}",
                table=str(table),
            )
        known[plain] = name
    return None


def _without_case(name: str) -> str:
    """Names that are equal so are equal to Java's `equalsIgnoreCase`, by which Spark finds columns."""

    def plain(character: str) -> str:
        upper = character.upper()
        lower = (upper if len(upper) == 1 else character).lower()
        return lower if len(lower) == 1 else lower[0]

    return "".join(map(plain, name))


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
        table = _is_of_a_table(entry) or any(one.is_file() for one in entry.glob("*.metadata.json"))
        if table or (entry.is_file() and not entry.name.startswith(".")):
            raise ConfigError(
                f"The sink's path {path} holds something else: {entry.name}.", hint=cure, path=str(path)
            )


def _is_of_a_table(entry: Path) -> bool:
    """What a directory holds that is itself a table. A database or a table may have such a name: then it is
    a directory of other directories."""
    if entry.name == "_delta_log":
        return any(one.is_file() for one in entry.iterdir())
    return entry.name == "_penstock.json" and entry.is_file()


def append_only(name: str, method: str) -> InternalError:
    return InternalError(f"The {name} sink is append-only; {method} was called on it.")
