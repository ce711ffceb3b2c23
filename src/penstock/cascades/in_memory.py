"""The values with which the driver computes what foreign keys did to a few rows of one table (`replay.py`).
Pure.

Rows are tuples of plain values (`plain`): numbers, texts and bytes; times as the numbers in which they are
stored.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.cascades.comparison import Comparison
from penstock.cascades.keys import acts
from penstock.model.schema import CascadingKey

LAST = 2**63 - 1
"""The end of a version that still exists at the epoch's end."""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Effect:
    """What a change of a parent row at sequence `p` does to rows that refer to it: their columns become
    `new`, or (`ends`) they are deleted."""

    p: int
    new: Row
    ends: bool


@dataclass(frozen=True)
class Edge:
    """A foreign key. `columns`: indexes of the child's columns in its rows. `effects`: by the old values of
    the columns, in compared form; each list is ordered by sequence."""

    key: CascadingKey
    columns: tuple[int, ...]
    comparisons: tuple[Comparison, ...]
    effects: Mapping[Row, list[Effect]]

    def value_of(self, row: Row) -> Row:
        """The values that the row refers to, in compared form."""
        return self.compared(tuple(row[place] for place in self.columns))

    def compared(self, values: Row) -> Row:
        return tuple(compared(value, how) for value, how in zip(values, self.comparisons, strict=True))

    @property
    def sets(self) -> bool:
        """Whether any effect sets a value other than NULL."""
        return any(value is not None for one in self.effects.values() for e in one for value in e.new)

    def effect_of(self, before: Row, after: Row | None, p: int) -> Effect | None:
        """The effect of a change of a parent's values from `before` to `after` (None: the row was deleted).
        None: no effect."""
        does = acts(self.key, deleted=after is None)
        if not does or before == after or None in before:
            return None
        if after is not None and self.key.on_update == "CASCADE":
            return Effect(p, after, ends=False)
        return Effect(p, (None,) * len(before), ends=after is None and self.key.on_delete == "CASCADE")

    def brings_back(self) -> bool:
        """Whether a later change restored a value that an earlier one had replaced."""
        return any(
            earlier.p < effect.p
            for effects in self.effects.values()
            for effect in effects
            if not effect.ends and None not in effect.new
            for earlier in self.effects.get(self.compared(effect.new), ())
        )


@dataclass(frozen=True)
class Version:
    row: Row
    since: int
    chunk: bool = False
    """Whether it comes from a chunk that is being placed."""


@dataclass(frozen=True)
class Hit:
    before: Row
    after: Row
    p: int
    ends: bool
    chunk: bool


@dataclass
class Images:
    """The sequences at which the log has an image of a key."""

    key: tuple[int, ...]
    """Indexes of the key columns in a row."""
    _sequences: dict[Row, list[int]] = field(default_factory=dict)

    def add(self, rows: Iterable[Row], sequences: Iterable[int]) -> None:
        for row, sequence in zip(rows, sequences, strict=True):
            self._sequences.setdefault(self._of(row), []).append(sequence)
        for known in self._sequences.values():
            known.sort()

    def all(self) -> Iterator[tuple[Row, int]]:
        """Keys and sequences."""
        return ((key, one) for key, known in self._sequences.items() for one in known)

    def after(self, row: Row, since: int) -> int:
        known = self._sequences.get(self._of(row), [])
        place = bisect.bisect_right(known, since)
        return known[place] if place < len(known) else LAST

    def _of(self, row: Row) -> Row:
        return tuple(row[place] for place in self.key)


def compared(value: Any, how: Comparison) -> Any:
    """The value in a form that is equal if the server considers the values equal. Exact for plain ASCII
    texts."""
    if isinstance(value, str):
        if "padded" in how:
            value = value.rstrip(" ")
        if "folded" in how:
            value = value.lower()
    return value


def edge_of(
    key: CascadingKey,
    columns: tuple[int, ...],
    comparisons: tuple[Comparison, ...],
    changes: pa.Table,
    referenced: tuple[int, ...],
) -> Edge:
    """The edge of a foreign key. `changes`: `o…`, `n…` of the places `referenced`, `gone`, `p`
    (`cascades/parent_changes.py`)."""
    old = list(zip(*[plain(changes[f"o{place}"]) for place in referenced], strict=True))
    new = list(zip(*[plain(changes[f"n{place}"]) for place in referenced], strict=True))
    effects: dict[Row, list[Effect]] = {}
    edge = Edge(key, columns, comparisons, effects)
    for before, after, gone, p in zip(
        old, new, changes["gone"].to_pylist(), changes["p"].to_pylist(), strict=True
    ):
        effect = edge.effect_of(before, None if gone else after, p)
        if effect is not None:
            effects.setdefault(edge.compared(before), []).append(effect)
    for one in effects.values():
        one.sort(key=lambda effect: effect.p)
    return edge


def outcome(hits: Iterable[Hit], images: Images) -> list[tuple[Row, bool, int]]:
    """The result of the hits at the epoch's end. For each key its last change, unless a later one is in the
    log: row, whether it was deleted, sequence."""
    last: dict[Row, tuple[int, bool, Row]] = {}
    for hit in hits:
        before, after = (tuple(row[place] for place in images.key) for row in (hit.before, hit.after))
        if hit.ends or before != after:
            _keep(last, before, (hit.p, False, hit.before))
        if not hit.ends:
            _keep(last, after, (hit.p, True, hit.after))
    return [
        (row, not stays, p) for p, stays, row in last.values() if images.after(row, p) == LAST
    ]  # fmt: skip


def _keep(last: dict[Row, tuple[int, bool, Row]], key: Row, event: tuple[int, bool, Row]) -> None:
    """Stores the later event of a key. At the same sequence, an insertion wins over a deletion."""
    if key not in last or event[:2] > last[key][:2]:
        last[key] = event


def derived(hits: Iterable[Hit], watched: Sequence[int]) -> list[tuple[Row, Row, bool, int]]:
    """The hits as changes for the tables that refer to this one: old and new values of the `watched` columns,
    whether the row was deleted, sequence."""
    found: dict[tuple[Row, Row, bool, int], None] = {}
    for hit in hits:
        before = tuple(hit.before[place] for place in watched)
        after = tuple(None if hit.ends else hit.after[place] for place in watched)
        if hit.ends or before != after:
            found[before, after, hit.ends, hit.p] = None
    return list(found)


# between Arrow and plain values -----------------------------------------------------------------------------


def plain(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    stored = _stored(array.type)
    if stored is not None:
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        return [value for chunk in chunks for value in chunk.view(stored).to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]


def arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    stored = _stored(kind)
    return pa.array(values, kind) if stored is None else pa.array(values, stored).view(kind)


def _stored(kind: pa.DataType) -> pa.DataType | None:
    if not pa.types.is_temporal(kind):
        return None
    return pa.int32() if kind.bit_width == 32 else pa.int64()
