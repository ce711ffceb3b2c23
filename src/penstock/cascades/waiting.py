"""What tables with a pending resnapshot wait for. Pure.

Nothing of it is stored. It is decided from the states of all tables each time somebody asks, so whatever
happens to a parent (it is parked, read, dropped or removed), the tables that refer to it are decided again.
Who acts: `planning/resnapshots.py` begins tables that wait for nobody, and the planner parks those that wait
for an operator (`cascades.keys.hindered`). So a table whose status is `live` waits only for tables that are
being read, that catch up, or that will be read without an operator.

Tables whose keys form a circle cannot wait for each other. They begin together, and are judged by the
definitions that they have then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.schema import TableId
from penstock.model.table import CatchingUp, Parked, Reading, ResnapshotPending, TableState


@dataclass(frozen=True)
class Nobody:
    """The resnapshot begins at the next occasion."""


@dataclass(frozen=True)
class Parents:
    """These tables are being read, or will be, without an operator."""

    tables: tuple[TableId, ...]


@dataclass(frozen=True)
class Operator:
    """This parent is parked until an operator acts, or waits for such a table itself."""

    parent: TableId


WaitsFor = Nobody | Parents | Operator


def waits_for(tables: Mapping[TableId, TableState]) -> dict[TableId, WaitsFor]:
    """What each table with a pending resnapshot waits for."""
    lacking = {
        name: _incomplete_parents(state, tables)
        for name, state in tables.items()
        if isinstance(state.phase, ResnapshotPending)
    }
    found: dict[TableId, WaitsFor] = {}
    stuck = {name for name, state in tables.items() if isinstance(state.phase, Parked)}
    while wave := {
        name: Operator(next(one for one in parents if one in stuck))
        for name, parents in lacking.items()
        if name not in found and not stuck.isdisjoint(parents)
    }:
        found |= wave
        stuck |= wave.keys()
    free = {name: parents for name, parents in lacking.items() if name not in found}
    for circle in _circles(free):
        outside = {parent for name in circle for parent in free[name]} - circle
        found |= dict.fromkeys(circle, Parents(tuple(sorted(outside))) if outside else Nobody())
    return found


def is_complete(parent: TableState) -> bool:
    """Whether all future changes of the parent's rows are known, including those by foreign keys."""
    return parent.planned and not (parent.schema.foreign_keys and parent.reading)


def is_unfinished(tables: Mapping[TableId, TableState], partials: Iterable[PartialSnapshot] = ()) -> bool:
    """Whether a table is being read or catching up, or will be without an operator. `partials`: partial
    snapshots that have not ended."""
    read_in_part = [tables[one.table] for one in partials if one.table in tables]
    return (
        any(one.streaming for one in read_in_part)
        or any(isinstance(one.phase, Reading | CatchingUp) for one in tables.values())
        or any(not isinstance(one, Operator) for one in waits_for(tables).values())
    )


def _incomplete_parents(state: TableState, tables: Mapping[TableId, TableState]) -> tuple[TableId, ...]:
    """The parents that have to come first. Those that do not exist or are not followed never come: without
    them the table begins, and its present definition says whether it needs them."""
    parents = dict.fromkeys(key.parent for key in state.schema.foreign_keys if key.parent != state.table)
    return tuple(
        name for name in parents if name in tables and not tables[name].gone and not is_complete(tables[name])
    )


def _circles(parents: Mapping[TableId, Iterable[TableId]]) -> list[set[TableId]]:
    """The tables in groups: those that refer to each other, directly or not, are in one. The others are
    alone."""
    edges = {name: [one for one in others if one in parents] for name, others in parents.items()}
    alone: set[TableId] = set()
    while wave := {name for name in edges.keys() - alone if alone.issuperset(edges[name])}:
        alone |= wave
    reached = {name: _reachable(name, edges) for name in edges.keys() - alone}
    groups = {
        frozenset({name, *(one for one in reached[name] - alone if name in reached[one])}) for name in reached
    }
    return [{name} for name in alone] + [set(group) for group in groups]


def _reachable(start: TableId, edges: Mapping[TableId, Iterable[TableId]]) -> set[TableId]:
    found: set[TableId] = set()
    wave = set(edges[start])
    while wave:
        found |= wave
        wave = {one for name in wave for one in edges[name]} - found
    return found
