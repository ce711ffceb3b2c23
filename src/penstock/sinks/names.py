"""Names of namespaces, tables and columns of targets. Names at the source may contain any character. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from penstock.errors import TableError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, PREFIX, SEQUENCE, own_columns
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument

TEMPORARY = PREFIX + "next_"
"""Prefix of temporary columns. A converted column's values are collected in one until all are there."""

OWN_COLUMNS = (SEQUENCE, CHANGE_TYPE, COMMIT_TIMESTAMP)
"""The columns that Penstock adds to targets; the last two to change logs alone."""


class Reserved(Protocol):
    """See `SinkOptions.reserved`."""

    def __call__(self, column: str) -> str | None: ...


_COMPONENT_BYTES_MAX = 255
"""The limit for a file name on common file systems."""
_DIGEST_BYTES = 55
"""Room for a digest at the end of a name that is cut."""
_INDEX_BYTES_MAX = 190
"""Names of indexes get endings, and have at most 255 bytes, too."""


def namespace_levels(template: str, table: TableId) -> tuple[str, ...]:
    """The levels of the target's namespace. Dots in the template separate levels; dots in the database's name
    do not."""
    return tuple(level.replace("{database}", table.database) for level in template.split("."))


def directory_name(name: str) -> str:
    """The name of a table or database as a directory name. Letters, digits, `-`, `$` and `_` after the first
    place stay; other characters become `@` and their code point, as in MySQL's own file names. Different
    names stay different, and none is too long for a file system."""

    def safe(place: int, character: str) -> bool:
        # A leading underscore or dot hides a directory from Spark and pyarrow.
        return character.isalnum() or character in "-$" or (character == "_" and place > 0)

    return _component(name, safe)


def catalog_name(name: str) -> str:
    """A name for a catalog. Only characters that a directory catalog or a location in an object store would
    misread are encoded, as in `directory_name`. Iceberg cuts a location on S3 at `?` and `#`, so all files of
    a table `a#b` would be one object `a`."""

    def safe(place: int, character: str) -> bool:
        return character not in "/\\:@?#" and character >= " " and (character != "." or place > 0)

    return _component(name, safe)


def index_name(name: str) -> str:
    """A name for an index of a search engine, which knows no capital letters: they become small ones."""

    def safe(place: int, character: str) -> bool:
        return character.isalnum() or (character in "-_." and place > 0)

    lower = "".join(one if len(one) == 1 else character for character in name for one in [character.lower()])
    return _component(lower, safe, bytes_max=_INDEX_BYTES_MAX)


def _component(name: str, safe: Callable[[int, str], bool], *, bytes_max: int = _COMPONENT_BYTES_MAX) -> str:
    """A name that is too long for a file system is cut and ends in `@~` and a digest of the whole name. No
    other name contains `@~`, because `@` itself is encoded."""

    def coded(character: str) -> str:
        code = ord(character)
        return f"@{code:04x}" if code < 0x10000 else f"@@{code:06x}"

    text = "".join(c if safe(place, c) else coded(c) for place, c in enumerate(name))
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= bytes_max:
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{data[: bytes_max - _DIGEST_BYTES].decode('utf-8', 'ignore')}@~{digest}"


def target_names(namespace: str, table: TableId) -> tuple[str, ...]:
    """The full name of a table's target. Two tables with equal ones would share a target."""
    return (*namespace_levels(namespace, table), table.table)


def source_columns(names: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The names without those of columns that Penstock adds."""
    own = own_columns(names)
    return tuple(name for name in names if name not in own)


def which_penstock_adds(column: str, own: Collection[str] = OWN_COLUMNS) -> str | None:
    """The answer of `SinkOptions.reserved` of a sink that adds the columns `own`, and has no other names for
    itself."""
    return "which Penstock adds to the rows" if without_case(column) in own else None


def unfit_columns(
    table: TableId,
    names: Sequence[str],
    reserved: Reserved,
    *,
    before: Sequence[str] = (),
    then: str = "unpark FILE",
) -> TableError | None:
    """Why a target of the sink whose options say what is `reserved` cannot have columns with these names.
    None: it can. `before`: the columns of the source, to which `transforms` gives these names. `then`: the
    command that continues with other names."""
    for name in (*before, *names):
        if without_case(name).startswith(PREFIX):
            own = f"{table} has a column `{name}`. Names that begin with `{PREFIX}` are Penstock's own."
            hint = f"Rename it at the source, or leave {table} out of the pipeline."
            return TableError(own, hint=hint, table=str(table))
    if (found := _unfit(names, reserved)) is None:
        return None
    column, what = found
    return TableError(
        f"{table} has {what}.",
        hint=f"Give `{column}` another name at the target, by `rename` in `transforms`, or leave it out, by "
        f"`exclude` (`penstock docs transforms`). Then run `penstock {then} {argument(table)}`.",
        table=str(table),
    )


def _unfit(names: Sequence[str], reserved: Reserved) -> tuple[str, str] | None:
    """A column that a target cannot have beside the others, and what is wrong."""
    known: dict[str, str] = {}
    for name in names:
        if (why := reserved(name)) is not None:
            return name, f"a column `{name}`, {why}"
        plain = without_case(name)
        if plain in known:
            same = f"the columns `{known[plain]}` and `{name}`, which are the same to Spark: it ignores case"
            return name, same
        known[plain] = name
    if {CHANGE_TYPE, COMMIT_TIMESTAMP} <= known.keys():
        return CHANGE_TYPE, f"both columns of a change log, `{CHANGE_TYPE}` and `{COMMIT_TIMESTAMP}`"
    return None


def refuse_columns(table: TableId, names: Sequence[str], reserved: Reserved = which_penstock_adds) -> None:
    """Raises `TableError` if a target that exists cannot get columns with these names. Rules that give them
    others make another target."""
    error = unfit_columns(table, names, reserved, then="resnapshot --recreate FILE")
    if error is not None:
        raise error


def refuse_own_names(schema: TableSchema, reserved: Reserved = which_penstock_adds) -> None:
    """Raises `TableError` if a target cannot have columns with the names of this table's columns."""
    error = unfit_columns(schema.table, [column.name for column in schema.columns], reserved)
    if error is not None:
        raise error


def without_case(name: str) -> str:
    """Folds case as Java's `equalsIgnoreCase` does, with which Spark looks up columns."""

    def plain(character: str) -> str:
        upper = character.upper()
        lower = (upper if len(upper) == 1 else character).lower()
        return lower if len(lower) == 1 else lower[0]

    return "".join(map(plain, name))
