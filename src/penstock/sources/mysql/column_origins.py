"""How one definition became another: the origins of columns, and what is certain about rows."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sources.mysql.ddl.conversion import silent_changes
from penstock.sources.mysql.ddl.definition import TableDefinition
from penstock.sources.mysql.ddl.server import Server

_NAMED_MAX = 4
"""Columns named in a description of a change, so that it stays one line."""


@dataclass(frozen=True)
class Evolution:
    """How a table's columns follow from those before. `origins`: the earlier name of each column; None for a
    new one. `silent`: reasons why rows may have other values than before without row events."""

    definition: TableDefinition
    origins: tuple[str | None, ...]
    silent: tuple[str, ...] = ()

    @classmethod
    def identity(cls, definition: TableDefinition) -> Evolution:
        return cls(definition, tuple(column.name for column in definition.columns))

    def then(self, later: Evolution) -> Evolution:
        """Returns the result of this evolution and another one after it."""
        known = {
            column.name.lower(): origin
            for column, origin in zip(self.definition.columns, self.origins, strict=True)
        }
        origins = tuple(None if origin is None else known.get(origin.lower()) for origin in later.origins)
        return Evolution(later.definition, origins, tuple(dict.fromkeys(self.silent + later.silent)))

    @classmethod
    def compared(cls, before: TableDefinition, after: TableDefinition, server: Server) -> Evolution:
        """Returns the evolution between two definitions, by the names of columns alone, for statements that
        are not known."""
        pairs = [(before.find(column.name), column) for column in after.columns]
        catalog = any(column.from_catalog for column in after.columns)
        silent = silent_changes(pairs, server, statement=not catalog)
        return cls(after, tuple(None if old is None else old.name for old, _ in pairs), tuple(silent))


def what_changed(before: TableDefinition, evolution: Evolution) -> str:
    """The change in a few words, for people."""
    added: list[str] = []
    renamed: list[str] = []
    changed: list[str] = []
    for column, origin in zip(evolution.definition.columns, evolution.origins, strict=True):
        old = before.find(origin) if origin is not None else None
        if old is None:
            added.append(column.name)
        elif old.name != column.name:
            renamed.append(f"{old.name} to {column.name}")
        elif old.column != column.column:
            changed.append(column.name)
    kept = {origin.lower() for origin in evolution.origins if origin is not None}
    dropped = [column.name for column in before.columns if column.name.lower() not in kept]
    parts = [
        f"{verb} {_named(names)}"
        for verb, names in (("adds", added), ("drops", dropped), ("renames", renamed), ("changes", changed))
        if names
    ]
    after = evolution.definition
    if before.key != after.key:
        parts.append(f"key is ({', '.join(after.key)})" if after.key else "has no key")
    if (before.charset, before.collation) != (after.charset, after.collation):
        parts.append(f"default character set {after.charset}")
    if not parts and evolution.origins != tuple(column.name for column in before.columns):
        parts.append("reorders columns")
    return ", ".join(parts) or ", ".join(evolution.silent) or "unique keys"


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
