"""Cascading foreign keys: between which tables they lie, what they do, and whether they can be followed.
Pure.

When a table's rows can be followed. Its parents' changes come from the log: they are complete if every parent
is captured, live, and began no later than the table. A parent that has such keys itself also changes without
row events; those changes are known only while all its rows are at its target. So a table is read only after
such parents were read, and it is read again when a parent is. A table that refers to itself cannot wait
for itself: it is read in one piece whose place in the log is known, and goes on from there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from penstock import _core
from penstock.model.offset import Offset
from penstock.model.plan import Kept
from penstock.model.schema import PASSIVE_RULES, CascadingKey, Column, TableId, TableSchema, TypeOptions
from penstock.model.table import CatchingUp, Parked, Reading, ResnapshotPending, TableState
from penstock.printable import argument

ACTIVE = ("CASCADE", "SET NULL")

CIRCLE_SHOWN_MAX = 5
AFTER_PARENTS = "its rows are read after those of the tables it refers to"

Comparison = Literal["exact", "padded", "folded", "folded padded", "unknown"]
"""How values of a column are compared: by their bytes; without spaces at their end; without letter case; or
in a way that is not known here. All but `exact` and `unknown` hold for plain ASCII only, `padded` for
all."""

_FOLDED = ("general_ci", "unicode_ci", "unicode_520_ci", "swedish_ci", "0900_ai_ci", "0900_as_ci",
           "uca1400_ai_ci", "uca1400_as_ci", "unicode_520_nopad_ci", "general_nopad_ci", "unicode_nopad_ci",
           "uca1400_nopad_ai_ci", "uca1400_nopad_as_ci")  # fmt: skip
"""Collations without the rules of one language, under which printable ASCII differs only by letter case."""
_CASED = ("0900_as_cs", "general_cs", "uca1400_as_cs", "uca1400_nopad_as_cs")


@dataclass(frozen=True)
class Hindrance:
    """Why a table cannot be followed now. `resnapshots`: it is read again once it can be. `parks`: an
    operator has to act before."""

    reason: str
    hint: str = ""
    resnapshots: bool = True
    parks: bool = False


def acts(key: CascadingKey, *, deleted: bool) -> bool:
    """Whether the key does something when a row of the parent is deleted, or updated."""
    return (key.on_delete if deleted else key.on_update) in ACTIVE


def refers_to_itself(schema: TableSchema) -> bool:
    return any(key.parent == schema.table for key in schema.foreign_keys)


def is_held(state: TableState) -> bool:
    """Whether the table is being read in one piece; until that is placed, epochs leave its events alone."""
    return state.reading and refers_to_itself(state.schema)


def upstream(table: TableId, schemas: Mapping[TableId, TableSchema]) -> set[TableId]:
    """The table, and all whose changes may change its rows."""
    found: set[TableId] = set()
    wave = {table}
    while wave:
        found |= wave
        schema_keys = [key for one in wave if one in schemas for key in schemas[one].foreign_keys]
        wave = {key.parent for key in schema_keys} - found
    return found


def moves_rows(schema: TableSchema) -> bool:
    """Whether a foreign key may change what identifies a row."""
    return any(
        key.on_update == "CASCADE" and not set(key.columns).isdisjoint(schema.key)
        for key in schema.foreign_keys
    )


def below(schemas: Mapping[TableId, TableSchema], touched: Iterable[TableId]) -> set[TableId]:
    """Tables whose rows foreign keys may change when rows of the `touched` ones do, through all levels."""
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
    """Tables with cascading keys, each after those it refers to. A circle of tables is left out."""
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


def comparison(column: Column) -> Comparison:
    """How the server compares values of a key's column."""
    if column.charset in (None, "binary") or column.collation in (None, "binary"):
        return "exact"
    collation = str(column.collation)
    name = collation.partition("_")[2]
    padded = not name.startswith("0900_") and "nopad" not in name
    if name == "bin" or name.endswith("_bin"):
        return "padded" if padded else "exact"
    if name in _FOLDED:
        return "folded padded" if padded else "folded"
    if name in _CASED:
        return "padded" if padded else "exact"
    return "unknown"


def is_case_sensitive(column: Column) -> bool:
    """Only equal texts are equal, also beyond ASCII."""
    return str(column.collation or "bin").endswith("bin") or column.charset in (None, "binary")


def held_back(tables: Mapping[TableId, TableState], types: TypeOptions) -> dict[TableId, Hindrance]:
    """Of the tables that epochs carry, all that must not be carried on now: those that are hindered, and
    those that are hindered because others are. Those that somebody has to do something about come first:
    what refers to them waits for that, and not only until they were read."""
    now, found = dict(tables), dict[TableId, Hindrance]()
    while more := hindrances(now, types):
        parks = {name: why for name, why in more.items() if why.parks}
        for name, why in (parks or more).items():
            found[name] = why
            now[name] = after(now[name], why, now[name].start)
    return found


def after(state: TableState, why: Hindrance, at: Offset) -> TableState:
    """The table from then on; `at` is where it is parked."""
    if not why.parks:
        return state.read_again(why.reason)
    parked = Parked(at, why.reason, why.hint)
    return replace(state, phase=ResnapshotPending(why.reason, parked) if why.resnapshots else parked)


def hindrances(tables: Mapping[TableId, TableState], types: TypeOptions) -> dict[TableId, Hindrance]:
    """Of the tables that epochs carry: those that must not be carried on now, as the others are."""
    live = {name: state for name, state in tables.items() if state.planned and state.schema.foreign_keys}
    schemas = {name: state.schema for name, state in live.items()}
    behind_circles = set(live) - set(parents_first(schemas))
    found: dict[TableId, Hindrance] = {}
    for name, state in live.items():
        reasons = [_hindrance(state, key, tables, types) for key in state.schema.foreign_keys]
        worst = [one for one in reasons if one is not None and not one.resnapshots] or [
            one for one in reasons if one
        ]
        if name in behind_circles and (circle := _circle_of(name, schemas)):
            found[name] = _circle(name, circle)
        elif worst:
            found[name] = worst[0]
    return found


def _circle_of(table: TableId, schemas: Mapping[TableId, TableSchema]) -> set[TableId]:
    """The tables that lie with this one in a circle of keys; empty if it is in none. One that only refers to
    a table of a circle is not in it."""
    return {
        other
        for other in upstream(table, schemas) - {table}
        if other in schemas and table in upstream(other, schemas)
    }


def waits(state: TableState, tables: Mapping[TableId, TableState]) -> bool:
    """Whether a table that is to be read again has to wait for its parents."""
    parents = [tables.get(key.parent) for key in state.schema.foreign_keys if key.parent != state.table]
    return any(one is not None and not one.gone and not _is_complete(one) for one in parents)


def is_held_back(state: TableState, tables: Mapping[TableId, TableState]) -> bool:
    """Whether it waits for somebody to do something about a table it refers to."""
    if not isinstance(state.phase, Parked | ResnapshotPending):
        return False
    parents = [tables.get(key.parent) for key in state.schema.foreign_keys if key.parent != state.table]
    return any(one is not None and _waits_for_operator(one, tables) for one in parents)


def _waits_for_operator(state: TableState, tables: Mapping[TableId, TableState]) -> bool:
    """Whether a parked table stays so until somebody acts. Else it comes back by itself."""
    return isinstance(state.phase, Parked) or (state.parked is not None and is_held_back(state, tables))


def is_unfinished(tables: Mapping[TableId, TableState]) -> bool:
    """Whether a table is on its way and will be there without anybody's help."""
    return any(
        isinstance(one.phase, Reading | CatchingUp)
        or (isinstance(one.phase, ResnapshotPending) and not is_held_back(one, tables))
        for one in tables.values()
    )


def _is_complete(parent: TableState) -> bool:
    """What foreign keys do to the parent's own rows is known from now on."""
    return parent.planned and not (parent.schema.foreign_keys and parent.reading)


def _hindrance(
    state: TableState, key: CascadingKey, tables: Mapping[TableId, TableState], types: TypeOptions
) -> Hindrance | None:
    parent = tables.get(key.parent)
    if parent is None or parent.gone:
        reason, hint = parent_missing(state.table, key)
        return Hindrance(reason, hint, resnapshots=False, parks=True)
    if (why := unfit(key, state.schema, parent.schema, state.kept, types)) is not None:
        return Hindrance(
            f"What the foreign key {key.name} changes in {state.table} cannot be worked out: {why}.",
            f"Take the rule off the key, or accept the gap with `cascades: ignore`; then run `penstock "
            f"resnapshot FILE {argument(state.table)}`.",
            resnapshots=False,
            parks=True,
        )
    if parent.table == state.table:
        return None
    if _waits_for_operator(parent, tables):
        cure = f"Run `penstock resnapshot FILE {argument(parent.table)}`"
        if parent.resnapshot_pending:
            cure = f"Do what {parent.table} waits for"
        return Hindrance(
            f"Rows of {state.table} change with those of {parent.table} (foreign key {key.name}), which is "
            "parked.",
            f"{cure}; {state.table} is read again after it.",
            parks=True,
        )
    if not parent.planned or (state.reading and not _is_complete(parent)):
        return Hindrance(AFTER_PARENTS)
    if parent.start > state.start:
        return Hindrance(f"{parent.table}, to which it refers, was read again")
    return None


def parent_missing(table: TableId, key: CascadingKey) -> tuple[str, str]:
    """Reason and cure."""
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
    shown = ", ".join(names[:CIRCLE_SHOWN_MAX]) + (", …" if len(names) > CIRCLE_SHOWN_MAX else "")
    return Hindrance(
        f"{table} is in a circle of foreign keys that cascade, with {shown}, which `cascades: apply` cannot "
        "follow.",
        f"Take the rule off one of the keys, then run `penstock resnapshot FILE {argument(table)}`.",
        resnapshots=False,
        parks=True,
    )


def unfit(
    key: CascadingKey, child: TableSchema, parent: TableSchema, kept: Kept | None, types: TypeOptions
) -> str | None:
    """Why values of the two sides cannot be compared, or set; None: they can."""
    if not {key.on_delete, key.on_update} <= {*ACTIVE, *PASSIVE_RULES}:
        return f"its rules are ON DELETE {key.on_delete} ON UPDATE {key.on_update}"
    own, other = ({column.name: column for column in one.columns} for one in (child, parent))
    if not set(key.columns) <= own.keys() or not set(key.referenced) <= other.keys():
        return "its columns are not known"
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
            return "the target, whose columns are kept, does not have its columns as they are now"
    return None
