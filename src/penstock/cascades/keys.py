"""Cascading foreign keys: which tables they connect, what they do, and whether a table can be followed. Pure.

When a table can be followed: its parents' changes come from the log. They are complete if every parent is
captured, live, and started no later than the table. A parent that has such keys itself also changes without
row events. These changes are known only once all its rows are at its target. So a table is read after such
parents, and it is read again when a parent is. A table that refers to itself cannot wait for itself. It is
read in one piece at a known offset of the log, and catches up from there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock import _core
from penstock.cascades.waiting import Operator, WaitsFor, is_complete, waits_for
from penstock.model.offset import Offset
from penstock.model.plan import KeptColumns
from penstock.model.schema import PASSIVE_RULES, CascadingKey, TableId, TableSchema, TypeOptions
from penstock.model.table import Parked, TableState
from penstock.printable import argument

ACTIVE = ("CASCADE", "SET NULL")

CIRCLE_SHOWN_MAX = 5
"""Tables of a circle of foreign keys that a reason names, so that it stays readable."""
AFTER_PARENTS = "waiting for the snapshots of its parent tables"


@dataclass(frozen=True)
class Hindrance:
    """Why a table cannot be followed now. `resnapshots`: it is read again once it can be. `parks`: an
    operator has to act first."""

    reason: str
    hint: str = ""
    resnapshots: bool = True
    parks: bool = False


def acts(key: CascadingKey, *, deleted: bool) -> bool:
    """Whether the key does something when a row of the parent is deleted, or updated."""
    return (key.on_delete if deleted else key.on_update) in ACTIVE


def refers_to_itself(schema: TableSchema) -> bool:
    return any(key.parent == schema.table for key in schema.foreign_keys)


def is_read_whole(state: TableState) -> bool:
    """Whether the table is being read in one piece. Until that is placed, epochs do not apply its events."""
    return state.reading and refers_to_itself(state.schema)


def upstream(table: TableId, schemas: Mapping[TableId, TableSchema]) -> set[TableId]:
    """The table and all tables whose changes may change its rows."""
    found: set[TableId] = set()
    wave = {table}
    while wave:
        found |= wave
        schema_keys = [key for one in wave if one in schemas for key in schemas[one].foreign_keys]
        wave = {key.parent for key in schema_keys} - found
    return found


def moves_rows(schema: TableSchema) -> bool:
    """Whether a foreign key may change key columns of the table."""
    return any(
        key.on_update == "CASCADE" and not set(key.columns).isdisjoint(schema.key)
        for key in schema.foreign_keys
    )


def below(schemas: Mapping[TableId, TableSchema], touched: Iterable[TableId]) -> set[TableId]:
    """Tables whose rows foreign keys may change, through all levels, when rows of the `touched` tables
    change."""
    reached: set[TableId] = set()
    wave = set(touched)
    while wave:
        wave = {
            table
            for table, schema in schemas.items()
            if table not in reached and any(key.parent in wave for key in schema.foreign_keys)
        }
        reached |= wave
    return reached


def parents_first(schemas: Mapping[TableId, TableSchema]) -> list[TableId]:
    """Tables with cascading keys, each after its parents. Tables in a circle, or behind one, are omitted."""
    waiting = {table: schema for table, schema in schemas.items() if schema.foreign_keys}
    ordered: list[TableId] = []
    while waiting:
        ready = sorted(
            table
            for table, schema in waiting.items()
            if not any(key.parent in waiting and key.parent != table for key in schema.foreign_keys)
        )
        if not ready:
            break
        ordered += ready
        waiting = {table: schema for table, schema in waiting.items() if table not in ready}
    return ordered


def hindered(tables: Mapping[TableId, TableState], types: TypeOptions) -> dict[TableId, Hindrance]:
    """All tables that cannot be followed now: those in epochs with a hindrance of their own, and those that
    depend on them, in epochs or waiting for a resnapshot. Hindrances that need an operator are decided first,
    so that tables that refer to such a table wait for the operator, too."""
    now, found = dict(tables), dict[TableId, Hindrance]()
    while more := hindrances(now, types):
        parks = {name: why for name, why in more.items() if why.parks}
        for name, why in (parks or more).items():
            found[name] = why
            now[name] = after(now[name], why, now[name].start)
    return found


def after(state: TableState, why: Hindrance, at: Offset) -> TableState:
    """The state of a hindered table. `at`: the offset at which it is parked."""
    if not why.parks:
        return state.read_again(why.reason)
    parked = state.park(at, why.reason, why.hint)
    return parked.read_again(why.reason) if why.resnapshots else parked


def hindrances(tables: Mapping[TableId, TableState], types: TypeOptions) -> dict[TableId, Hindrance]:
    """The tables that cannot be followed, given the states of the others: of those in epochs, and of those
    that wait for a table which has been parked in the meantime."""
    waiting = waits_for(tables)
    live = {name: state for name, state in tables.items() if state.planned and state.schema.foreign_keys}
    schemas = {name: state.schema for name, state in live.items()}
    behind_circles = set(live) - set(parents_first(schemas))
    found: dict[TableId, Hindrance] = {}
    for name, state in live.items():
        reasons = [_hindrance(state, key, tables, waiting, types) for key in state.schema.foreign_keys]
        if name in behind_circles and (circle := _circle_of(name, schemas)):
            found[name] = _circle(name, circle)
        elif reasons := [one for one in reasons if one is not None]:
            found[name] = min(reasons, key=lambda one: (one.resnapshots, not one.parks))
    for name, waits in waiting.items():
        if isinstance(waits, Operator) and tables[name].parked is None:
            key = next(one for one in tables[name].schema.foreign_keys if one.parent == waits.parent)
            found[name] = _behind_parked(name, key, tables[waits.parent])
    return found


def _circle_of(table: TableId, schemas: Mapping[TableId, TableSchema]) -> set[TableId]:
    """The other tables of this table's circle of keys; empty if it is in none. A table that only refers to a
    circle is not in it."""
    return {
        other
        for other in upstream(table, schemas) - {table}
        if other in schemas and table in upstream(other, schemas)
    }


def _hindrance(
    state: TableState,
    key: CascadingKey,
    tables: Mapping[TableId, TableState],
    waiting: Mapping[TableId, WaitsFor],
    types: TypeOptions,
) -> Hindrance | None:
    parent = tables.get(key.parent)
    if parent is None or parent.gone:
        reason, hint = parent_missing(state.table, key)
        return Hindrance(reason, hint, resnapshots=False, parks=True)
    if (why := unusable_because(key, state.schema, parent.schema, state.kept_columns, types)) is not None:
        return Hindrance(
            f"The changes that the foreign key {key.name} makes in {state.table} cannot be computed: {why}.",
            f"Remove the rule from the key, or accept the gap with `cascades: ignore`. Then run `penstock "
            f"resnapshot FILE {argument(state.table)}`.",
            resnapshots=False,
            parks=True,
        )
    if parent.table == state.table:
        return None
    if isinstance(parent.phase, Parked) or isinstance(waiting.get(parent.table), Operator):
        return _behind_parked(state.table, key, parent)
    if not parent.planned or (state.reading and not is_complete(parent)):
        return Hindrance(AFTER_PARENTS)
    if parent.start > state.start:
        return Hindrance(f"its parent {parent.table} was read again")
    return None


def _behind_parked(table: TableId, key: CascadingKey, parent: TableState) -> Hindrance:
    cure = f"Run `penstock resnapshot FILE {argument(parent.table)}`"
    if parent.resnapshot_pending:
        cure = f"See the hint of {parent.table}"
    return Hindrance(
        f"Rows of {table} change with those of {parent.table} (foreign key {key.name}), which is parked.",
        f"{cure}; {table} is read again after it.",
        parks=True,
    )


def parent_missing(table: TableId, key: CascadingKey) -> tuple[str, str]:
    """Reason and hint."""
    reason = (
        f"Rows of {table} are changed by the foreign key {key.name} when those of {key.parent} change, and "
        f"this pipeline does not follow {key.parent}."
    )
    hint = (
        f"Add {key.parent} to `tables`, restart the pipeline and run "
        f"`penstock resnapshot FILE {argument(table)}`."
    )
    return reason, hint


def _circle(table: TableId, others: Iterable[TableId]) -> Hindrance:
    names = sorted(map(str, others))
    every = " ".join(argument(one) for one in sorted((table, *others)))
    shown = ", ".join(names[:CIRCLE_SHOWN_MAX]) + (", …" if len(names) > CIRCLE_SHOWN_MAX else "")
    return Hindrance(
        f"{table} is in a circle of cascading foreign keys with {shown}. `cascades: apply` does not support "
        "that.",
        "Remove the rule from one of the keys, then read all tables of the circle again"
        + (f": `penstock resnapshot FILE {every}`." if len(names) <= CIRCLE_SHOWN_MAX else "."),
        resnapshots=False,
        parks=True,
    )


def unusable_because(
    key: CascadingKey, child: TableSchema, parent: TableSchema, kept: KeptColumns | None, types: TypeOptions
) -> str | None:
    """Why values of the two sides cannot be compared or set; None: they can."""
    if not {key.on_delete, key.on_update} <= {*ACTIVE, *PASSIVE_RULES}:
        return f"its rules are ON DELETE {key.on_delete} ON UPDATE {key.on_update}"
    own, other = ({column.name: column for column in one.columns} for one in (child, parent))
    if not set(key.columns) <= own.keys() or not set(key.referenced) <= other.keys():
        return "its columns are unknown"
    here, there = (_core.arrow_schema(one.to_json(), "rows", types.to_json()) for one in (child, parent))
    for mine, theirs in zip(key.columns, key.referenced, strict=True):
        if here.field(mine).type != there.field(theirs).type:
            return f"{mine} and {theirs} arrive as different types"
        if own[mine].labels != other[theirs].labels:
            return f"{mine} and {theirs} have different labels"
    if kept is not None:
        targets = _core.arrow_schema(kept.schema.to_json(), "rows", types.to_json())
        places = {source: targets.field(column.name).type
                  for column, source in zip(kept.schema.columns, kept.sources, strict=True)}  # fmt: skip
        if any(places.get(name) != here.field(name).type for name in key.columns) or moves_rows(child):
            return "the target has other columns (`schema.changes: ignore`)"
    return None
