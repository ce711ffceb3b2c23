"""Names of namespaces, tables and columns at a target, whatever characters the source has in them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from penstock.errors import TableError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId, TableSchema

ASIDE = "_penstock_next_"
"""Values of a column that is being converted wait under this name and its own until all of them are there."""

OWN_COLUMNS = (SEQUENCE, DELETED, CHANGE_TYPE, COMMIT_TIMESTAMP, PRESENT)

_COMPONENT_BYTES_MAX = 255
"""Of a file's name, on every file system in use."""
_COMPONENT_BYTES_KEPT = 200


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


def target_names(namespace: str, table: TableId) -> tuple[str, ...]:
    """What tells a table's target from others: two tables with the same names would have one target."""
    return (*namespace_levels(namespace, table), table.table)


def source_columns(names: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in OWN_COLUMNS and not name.startswith(ASIDE))


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


def own_name(schema: TableSchema) -> TableError | None:
    """Why the names of a table's columns keep it from having a target."""
    return unfit_columns(schema.table, [column.name for column in schema.columns])


def refuse_own_names(schema: TableSchema) -> None:
    if (error := own_name(schema)) is not None:
        raise error


def refuse_columns(table: TableId, names: Sequence[str]) -> None:
    if (error := unfit_columns(table, names)) is not None:
        raise error


def _without_case(name: str) -> str:
    """Names that are equal so are equal to Java's `equalsIgnoreCase`, by which Spark finds columns."""

    def plain(character: str) -> str:
        upper = character.upper()
        lower = (upper if len(upper) == 1 else character).lower()
        return lower if len(lower) == 1 else lower[0]

    return "".join(map(plain, name))
