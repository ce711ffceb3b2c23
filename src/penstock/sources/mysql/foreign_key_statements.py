"""What statements do to the cascading foreign keys of captured tables.

Names of keys come from the catalog, which has the names that the server chose. So a key that a statement
drops is always found. A table that gets a new key is read again, together with its entry in the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock.model.schema import CascadingKey, TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.sources.mysql.column_origins import Evolution
from penstock.sources.mysql.ddl.change import Altered, Change, Dropped, Moved

ADDED = "a foreign key that cascades was added"


def keys_after(known: TableSchema, evolution: Evolution) -> tuple[tuple[CascadingKey, ...], bool]:
    """The table's foreign keys after a change of its definition, and whether there are new ones."""
    names = {
        before: column.name
        for column, before in zip(evolution.definition.columns, evolution.origins, strict=True)
        if before is not None
    }
    before = {key.name: key for key in known.foreign_keys}
    keys = []
    for key in evolution.definition.cascading_keys:
        if before.get(key.name) == key:
            key = replace(key, columns=tuple(names.get(name, name) for name in key.columns))
        keys.append(key)
    shapes = {_shape(key, names) for key in known.foreign_keys}
    return tuple(keys), any(_shape(key, {}) not in shapes for key in keys)


def _shape(key: CascadingKey, names: dict[str, str]) -> CascadingKey:
    """The parts of a foreign key, without its name."""
    return replace(key, name="", columns=tuple(names.get(name, name) for name in key.columns))


def children_of_changed(
    changes: Iterable[Change], live: dict[TableId, TableSchema], done: set[TableId]
) -> Iterator[TableEffect]:
    """Tables whose foreign keys refer to a table that was renamed or dropped."""
    for change in changes:
        for table, schema in live.items():
            if table in done:
                continue
            why = next((why for key in schema.foreign_keys if (why := _lost(key, change))), None)
            if why is not None:
                done = {*done, table}
                yield TableEffect(table, voids=why, rereads=why, what=f"the foreign key's {why}")


def _lost(key: CascadingKey, change: Change) -> str | None:
    match change:
        case Altered(table=table) if table == key.parent:
            kept = {
                origin.before
                for column, origin in zip(change.after.columns, change.origins, strict=True)
                if column.name == origin.before
            }
            if not {name.lower() for name in key.referenced} <= {name.lower() for name in kept if name}:
                return f"parent {key.parent} has other columns now"
        case Dropped(table=table) if table == key.parent:
            return f"parent {key.parent} was dropped"
        case Moved(names=names, left=left):
            if key.parent in left or any(key.parent in (name, was) for name, was in names):
                return f"parent {key.parent} was renamed"
        case _:
            pass
    return None
