"""Checks that a sink makes before it writes, and the errors that it raises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors import (
    ConfigError,
    DriverReplaced,
    GrantMissing,
    InternalError,
    TableError,
    TargetRefused,
    TransientError,
)
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import SHARDS_BY, Commit, Foreign, TargetState

REPLACED_HINT = (
    "Nothing is lost: the other one continues. Do not start this one again with its copy of `state`, "
    "which is outdated now."
)
"""Advice of a driver that was replaced."""


def other_shape(place: str, present: str | None, wanted: str | None) -> Foreign | None:
    """A `Foreign` if the target was created for one source table and is now wanted for several, or the other
    way round. `present`, `wanted`: the shard column, or None for one table."""
    if present == wanted:
        return None

    def text(column: str | None) -> str:
        return "one table" if column is None else f"shards with the shard column {column}"

    cure = "Name another target in `merge_shards`, or drop this one if nobody needs it."
    return Foreign(place, f"it was created for {text(present)}, not for {text(wanted)}", cure)


def of_other_pipeline(place: str, what: str, owner: str, cure: str) -> Foreign:
    """A `Foreign` for the target of another pipeline. `what`: what it is, such as `table`."""
    lost = "If that pipeline does not run any more because its `state` is lost, `penstock adopt FILE` takes "
    return Foreign(place, f"the {what} of pipeline {owner}", f"{cure} {lost}its targets over.", owner=owner)


def refuse_foreign(table: TableId, state: TargetState) -> None:
    """Raises `ConfigError` if something that is not ours is in the target's place."""
    if isinstance(state, Foreign):
        raise state.error(table)


def shared_target(table: TableId, place: str, source: str) -> TableError:
    """The error for a table whose target was created for another one (`source`): their rows would mix."""
    return TableError(
        f"The target of {table}, {place}, is that of {source} already"
        f"{', whose name differs only in letter case' if source.lower() == str(table).lower() else ''}.",
        hint="Give each its own target by `{database}` in `sink.namespace` or in `to` of `transforms`, or "
        "let both share one by `merge_shards` (`penstock docs shards`). "
        f"Then run `penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
    )


def refuse_shared(table: TableId, place: str, source: str | None) -> None:
    """Raises `TableError` if the target was created for another table. `source`: that table, if known."""
    if source is not None and source != str(table):
        raise shared_target(table, place, source)


def unfit_target(table: TableId, place: str, differences: Sequence[str]) -> TableError:
    """The error for a table of others that should be adopted and does not fit."""
    return TableError(
        f"The target of {table}, {place}, cannot be adopted: {'; '.join(differences)}.",
        hint="Change the table so that it fits, then run "
        f"`penstock resnapshot FILE {argument(table)}`. Or leave out `adopt` for it, and name another "
        "`sink.namespace`, or drop the table if nobody needs it.",
        table=str(table),
    )


def refusal(table: TableId | None, *, of_table: bool) -> tuple[type[TargetRefused], dict[str, str]]:
    """The class of an error for an account that is refused, and its details. `of_table`: the account may log
    in, but not do what is needed for `table`."""
    if of_table and table is not None:
        return GrantMissing, {"table": str(table)}
    return TargetRefused, {}


def at(what: str, address: str) -> str:
    """How a message about a server begins: what failed, and where."""
    return what if address in what else f"{what} ({address})"


def lost_target(table: TableId, advice: str = "") -> TableError:
    """The error for a target whose server has forgotten what was committed. `advice`: a sentence that
    comes before what to do."""
    return TableError(
        f"The server has lost what was written to the target of {table}, or somebody has removed it.",
        hint=f"{advice}Run `penstock resnapshot --recreate FILE {argument(table)}`.",
        table=str(table),
    )


def changed_record(table: TableId) -> TransientError:
    """The error for a record of a target that was written between a look at it and a write."""
    return TransientError(f"The record of {table} was changed by somebody else.", hint="It is tried again.")


def rolled_back(table: TableId, epoch: int) -> TableError:
    """The error for a target that lacks what was committed up to an epoch."""
    return TableError(
        f"The target of {table} was rolled back or replaced by somebody else: it lacks some of what this "
        f"pipeline has written up to epoch {epoch}.",
        hint=f"Bring its newest version back, then run `penstock unpark FILE {argument(table)}`. Or run "
        f"`penstock resnapshot FILE {argument(table)}`, which reads the table again.",
        table=str(table),
    )


def missing_row(table: TableId, offset: int) -> TableError:
    """The error for an update that lacks columns (`Incomplete`) and has no row at the complete target."""
    return TableError(
        f"An update of table {table} at offset {offset} has only some of the row's columns, since the source "
        "logs parts of rows. The target has no such row to take the others from.",
        hint=f"Run `penstock resnapshot FILE {argument(table)}` to read the table again.",
        table=str(table),
        offset=offset,
    )


def lacking_columns(table: TableId, names: Sequence[str]) -> TableError:
    """The error for a target that is read, and that lacks columns of the source."""
    return TableError(
        f"The target of {table} lacks the columns {', '.join(names)} that the source has.",
        hint="Somebody else changed the target. Bring them back, or run "
        f"`penstock resnapshot FILE {argument(table)}`, which fills it again.",
        table=str(table),
    )


def unfit_value(table: TableId, column: str) -> TableError:
    """The error for a target that is read, and that has a value that the source cannot have."""
    return TableError(
        f"The column {column} in the target of {table} has a value that its type at the source cannot hold, "
        "so the two are not equal.",
        hint="Somebody else changed the target, or its column. Run "
        f"`penstock resnapshot FILE {argument(table)}`, which fills it again.",
        table=str(table),
    )


def same_key(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether shards with these keys can share a target."""
    return {name.lower() for name in one} == {name.lower() for name in other}


def other_key(shard: TableId, key: Sequence[str], table: TableId, other: Sequence[str]) -> TableError:
    return TableError(
        f"The key of {shard} is ({', '.join(key)}), but the key of {table}, which shares its target, is "
        f"({', '.join(other)}).",
        hint="Give all shards keys of the same columns, then run `penstock resnapshot FILE "
        f"{argument(shard)}`. Or leave {shard} out of `merge_shards`.",
        table=str(shard),
    )


def check_pipeline(commit: Commit, pipeline: str) -> None:
    """Raises `InternalError` for a commit of another pipeline than the sink's."""
    if commit.pipeline != pipeline:
        raise InternalError(f"A commit of pipeline {commit.pipeline} reached the sink of {pipeline}.")


def refuse_replaced(table: TableId, fenced: int, generation: int) -> None:
    """Raises `DriverReplaced` if a target is fenced for a later driver than this one."""
    if fenced > generation:
        raise DriverReplaced(
            f"Another driver has taken over this pipeline: the target of {table} is fenced for generation "
            f"{fenced}, and this driver has {generation}.",
            hint=REPLACED_HINT,
            table=str(table),
        )


def is_recorded(commit: Commit, last: Commit | None) -> bool:
    """Whether a target whose last commit is `last` has this commit already."""
    return last is not None and commit.place <= last.place


def check_directory(path: Path) -> None:
    """Creates the sink's directory if it is missing. Raises `ConfigError` if it contains anything but
    directories and hidden files."""
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
    """Whether an entry shows that its directory is itself a table. A database or table may have the same name
    as such an entry: then the entry is a directory that contains only directories."""
    if entry.name == "_delta_log":
        return any(one.is_file() for one in entry.iterdir())
    return entry.name == "_penstock.json" and entry.is_file()


def shape(shards_by: str | None) -> dict[str, str]:
    """The properties of a target that say whether several source tables share it."""
    return {} if shards_by is None else {SHARDS_BY: shards_by}
