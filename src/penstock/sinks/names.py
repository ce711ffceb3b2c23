"""Names of namespaces, tables and columns of targets. Names at the source may contain any character. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from penstock.errors import TableError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId, TableSchema

TEMPORARY = "_penstock_next_"
"""Prefix of temporary columns. A converted column's values are collected in one until all are there."""

OWN_COLUMNS = (SEQUENCE, DELETED, CHANGE_TYPE, COMMIT_TIMESTAMP, PRESENT)

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
    return tuple(name for name in names if name not in OWN_COLUMNS and not name.startswith(TEMPORARY))


def unfit_columns(table: TableId, names: Sequence[str]) -> TableError | None:
    """Why a target cannot have columns with these names. None: it can."""
    cure = f"or leave {table} out of the pipeline."
    known: dict[str, str] = {}
    for name in names:
        plain = _without_case(name)
        if plain in OWN_COLUMNS or plain.startswith(TEMPORARY):
            return TableError(
                f"{table} has a column `{name}`. Penstock adds a column with this name to the target.",
                hint=f"Rename it, {cure}",
                table=str(table),
            )
        if plain in known:
            return TableError(
                f"{table} has the columns `{known[plain]}` and `{name}`, which are the same name to Spark: "
                "it ignores case.",
                hint=f"Rename one of them, {cure}",
                table=str(table),
            )
        known[plain] = name
    return None


def own_name(schema: TableSchema) -> TableError | None:
    """Why a table cannot have a target: a column has a name that no target can have. None: it can."""
    return unfit_columns(schema.table, [column.name for column in schema.columns])


def refuse_own_names(schema: TableSchema) -> None:
    """Raises `TableError` if a target cannot have columns with the names of this table's columns."""
    if (error := own_name(schema)) is not None:
        raise error


def refuse_columns(table: TableId, names: Sequence[str]) -> None:
    """Raises `TableError` if a target cannot have columns with these names."""
    if (error := unfit_columns(table, names)) is not None:
        raise error


def _without_case(name: str) -> str:
    """Folds case as Java's `equalsIgnoreCase` does, with which Spark looks up columns."""

    def plain(character: str) -> str:
        upper = character.upper()
        lower = (upper if len(upper) == 1 else character).lower()
        return lower if len(lower) == 1 else lower[0]

    return "".join(map(plain, name))
