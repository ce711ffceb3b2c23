"""Computes what foreign keys did to a few rows of one table: all rows are followed through the log in its
order. Pure.

`spark/consequences.py` does the same for any number of rows. It defines versions, changes and hits, and
argues why the rule is correct. Only this module takes a table that refers to itself: there, a change of one
row is a change for other rows of the same table.

A change and all its consequences, on every level, take place at one sequence. Rows are looked up in their
state before it. Each row is affected once, however many keys lead to it. If one of them deletes the row, it
is deleted, whatever the others set.

Rows of chunks that are being placed are followed beside the others. A chunk's row and the target's row of the
same key may exist at the same time, and one does not affect the other.
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


Place = tuple[bool, Row]
"""Whether a row is of a chunk, and its key."""


class _CurrentRows:
    """The rows at one moment."""

    def __init__(self, edges: Sequence[Edge], key: tuple[int, ...]) -> None:
        self._edges = edges
        self._key = key
        self._rows: dict[Place, Version] = {}
        self._by_value: list[dict[Row, dict[Place, None]]] = [{} for _ in edges]

    def add(self, version: Version) -> None:
        place = version.chunk, tuple(version.row[column] for column in self._key)
        self.remove(place)
        self._rows[place] = version
        for edge, known in zip(self._edges, self._by_value, strict=True):
            known.setdefault(edge.value_of(version.row), {})[place] = None

    def remove(self, place: Place) -> None:
        version = self._rows.pop(place, None)
        if version is not None:
            for edge, known in zip(self._edges, self._by_value, strict=True):
                del known[edge.value_of(version.row)][place]

    def referring(self, edge: int, value: Row) -> list[tuple[Place, Version]]:
        return [(place, self._rows[place]) for place in self._by_value[edge].get(value, ())]


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
            for (chunk, key), one in found.items():
                hits.append(Hit(one.before, tuple(one.after), p, one.ends, chunk))
                current.remove((chunk, key))
            for (chunk, _), one in found.items():
                if not one.ends:
                    current.add(Version(tuple(one.after), p, chunk))
            continue
        for _, _, item in items:
            if isinstance(item, Version):
                current.add(item)
            else:
                for chunk in (False, True):
                    current.remove((chunk, item))  # type: ignore[arg-type]
    return hits


def _at(
    p: int,
    roots: list[tuple[int, Row, Effect]],
    edges: Sequence[Edge],
    own: Sequence[OwnEdge],
    current: _CurrentRows,
) -> dict[Place, _Pending]:
    """The results of the changes at one sequence, including their consequences."""
    found: dict[Place, _Pending] = {}
    todo = deque(roots)
    while todo:
        number, value, effect = todo.popleft()
        for place, version in current.referring(number, value):
            one = found.setdefault(place, _Pending(version.row, list(version.row)))
            if one.ends:
                continue
            before, until = one.before, tuple(one.after)
            for column, new in zip(edges[number].columns, effect.new, strict=True):
                one.after[column] = new
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
