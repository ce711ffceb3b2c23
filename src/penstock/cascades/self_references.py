"""Computes what foreign keys did to a table that refers to itself. Pure.

A change of one row affects other rows of the same table. So all rows are followed through the log in its
order, instead of one by one (`in_memory.py`).

A change and all its consequences, on every level, take place at one sequence. Rows are looked up in their
state before it. Each row is affected once, however many keys lead to it. If one of them deletes the row, it
is deleted, whatever the others set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.cascades.in_memory import Edge, Effect, Hit, Images, Row, Version

_IMAGE, _CHANGE, _BEGIN = range(3)
"""The order of events at one sequence: a row that ends or begins there is not hit there."""


@dataclass(frozen=True)
class OwnEdge:
    """A foreign key of the table to itself, by its number among the table's keys. `referenced`: indexes in
    its rows."""

    number: int
    referenced: tuple[int, ...]

    def values(self, row: Row) -> Row:
        return tuple(row[place] for place in self.referenced)


class _CurrentRows:
    """The rows at one moment."""

    def __init__(self, edges: Sequence[Edge], key: tuple[int, ...]) -> None:
        self._edges = edges
        self._key = key
        self._rows: dict[Row, Version] = {}
        self._by_value: list[dict[Row, set[Row]]] = [{} for _ in edges]

    def add(self, version: Version) -> None:
        key = self.key_of(version.row)
        self.remove(key)
        self._rows[key] = version
        for edge, known in zip(self._edges, self._by_value, strict=True):
            known.setdefault(edge.value_of(version.row), set()).add(key)

    def remove(self, key: Row) -> None:
        version = self._rows.pop(key, None)
        if version is not None:
            for edge, known in zip(self._edges, self._by_value, strict=True):
                known[edge.value_of(version.row)].discard(key)

    def referring(self, edge: int, value: Row) -> list[tuple[Row, Version]]:
        return [(key, self._rows[key]) for key in sorted(self._by_value[edge].get(value, ()))]

    def key_of(self, row: Row) -> Row:
        return tuple(row[place] for place in self._key)


@dataclass
class _Pending:
    """The pending result of one change for a row."""

    before: Row
    after: list[object]
    ends: bool = False


def replay(
    edges: Sequence[Edge], own: Sequence[OwnEdge], versions: Iterable[Version], images: Images
) -> list[Hit]:
    """All hits, in log order. `edges`: all keys of the table, with the changes from the log and from other
    tables. `own`: those of them that refer to the table itself."""
    current = _CurrentRows(edges, images.key)
    timeline: list[tuple[int, int, object]] = [(one.since, _BEGIN, one) for one in versions]
    timeline += [(sequence, _IMAGE, key) for key, sequence in images.all()]
    timeline += [
        (effect.p, _CHANGE, (number, value, effect))
        for number, edge in enumerate(edges)
        for value, effects in edge.effects.items()
        for effect in effects
    ]
    timeline.sort(key=lambda item: item[:2])
    hits: list[Hit] = []
    for (p, what), items in groupby(timeline, key=lambda item: item[:2]):
        if what == _CHANGE:
            found = _at(p, [item[2] for item in items], edges, own, current)  # type: ignore[misc]
            for key, one in found.items():
                hits.append(Hit(one.before, tuple(one.after), p, one.ends, chunk=False))
                current.remove(key)
            for one in found.values():
                if not one.ends:
                    current.add(Version(tuple(one.after), p))
            continue
        for _, _, item in items:
            if isinstance(item, Version):
                current.add(item)
            else:
                current.remove(item)  # type: ignore[arg-type]
    return hits


def _at(
    p: int,
    roots: list[tuple[int, Row, Effect]],
    edges: Sequence[Edge],
    own: Sequence[OwnEdge],
    current: _CurrentRows,
) -> dict[Row, _Pending]:
    """The results of the changes at one sequence, including their consequences."""
    found: dict[Row, _Pending] = {}
    todo = deque(roots)
    while todo:
        number, value, effect = todo.popleft()
        for key, version in current.referring(number, value):
            one = found.setdefault(key, _Pending(version.row, list(version.row)))
            if one.ends:
                continue
            before, until = one.before, tuple(one.after)
            for place, new in zip(edges[number].columns, effect.new, strict=True):
                one.after[place] = new
            one.ends = effect.ends
            after = tuple(one.after)
            for each in own:
                if not one.ends and each.values(until) == each.values(after):
                    continue
                values, edge = each.values(before), edges[each.number]
                follows = edge.effect_of(values, None if one.ends else each.values(after), p)
                if follows is not None:
                    todo.append((each.number, edge.compared(values), follows))
    return found
