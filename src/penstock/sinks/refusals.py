"""What a sink looks at before it writes, and how it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import SHARDS_BY, Commit, Foreign, TargetState


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


def shape(shards_by: str | None) -> dict[str, str]:
    """Properties of a target that say whether it is of several source tables."""
    return {} if shards_by is None else {SHARDS_BY: shards_by}
