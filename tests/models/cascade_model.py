"""A small server with cascading foreign keys, in plain Python: what statements do to rows, and what a log
says of it (everything but what foreign keys did).

Rows are tuples whose first column identifies them. One statement changes one row, at the next sequence; an
update takes two, for the images before and after it, as in the log."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Row = tuple[int | None, ...]
Tables = dict[str, dict[int, Row]]


@dataclass(frozen=True)
class Key:
    """`child.column` refers to the first column of `parent`."""

    child: str
    column: int
    parent: str
    on_delete: str
    on_update: str


@dataclass(frozen=True)
class Image:
    """As the core gives it in layout `changelog`; `checked`: the session had foreign_key_checks = 1."""

    table: str
    kind: str
    row: Row
    sequence: int
    checked: bool


class Refused(Exception):
    """The server would not do it."""


@dataclass
class ModelServer:
    widths: dict[str, int]
    keys: tuple[Key, ...]
    chance: random.Random
    ids: int = 6
    sequence: int = 1000
    tables: Tables = field(default_factory=dict)
    log: list[Image] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {name: {} for name in self.widths}

    def run(self, statements: int) -> None:
        done = 0
        while done < statements:
            before = copy.deepcopy(self.tables), self.sequence, len(self.log)
            try:
                self._statement()
                done += 1
            except Refused:
                self.tables, self.sequence = before[:2]
                del self.log[before[2] :]

    def _statement(self) -> None:
        table = self.chance.choice(list(self.widths))
        checked = self.chance.random() < 0.9
        rows = self.tables[table]
        what = self.chance.choice(("insert", "insert", "delete", "update", "update"))
        if what == "insert" or not rows:
            self._insert(table, self._row(table), checked=checked)
            return
        old = rows[self.chance.choice(list(rows))]
        if what == "delete":
            self._delete(table, old, checked=checked)
        else:
            new = self._row(table)
            keeps = self.chance.random() < 0.5
            self._update(table, old, (old[0] if keeps else new[0], *new[1:]), checked=checked)

    def _row(self, table: str) -> Row:
        values: list[int | None] = [self.chance.randrange(self.ids) for _ in range(self.widths[table])]
        return (values[0], *(None if self.chance.random() < 0.15 else value for value in values[1:]))

    def _note(self, table: str, kind: str, row: Row, checked: bool) -> int:
        self.sequence += self.chance.choice((1, 10))
        self.log.append(Image(table, kind, row, self.sequence, checked))
        return self.sequence

    # statements ---------------------------------------------------------------------------------------------

    def _insert(self, table: str, row: Row, *, checked: bool) -> None:
        if row[0] in self.tables[table]:
            raise Refused
        self._refers(table, row, checked)
        self.tables[table][_id(row)] = row
        self._note(table, "insert", row, checked)

    def _delete(self, table: str, row: Row, *, checked: bool) -> None:
        del self.tables[table][_id(row)]
        if checked:
            self._cascade(table, _id(row), None)
        self._note(table, "delete", row, checked)

    def _update(self, table: str, old: Row, new: Row, *, checked: bool) -> None:
        if old == new or (new[0] != old[0] and new[0] in self.tables[table]):
            raise Refused
        del self.tables[table][_id(old)]
        self.tables[table][_id(new)] = new
        changed = [key for key in self._of(table) if old[key.column] != new[key.column]]
        self._refers(table, new, checked, only=changed)
        if checked and new[0] != old[0]:
            self._cascade(table, _id(old), _id(new))
        self._note(table, "update_preimage", old, checked)
        self._note(table, "update_postimage", new, checked)

    def _of(self, table: str) -> Iterator[Key]:
        return (key for key in self.keys if key.child == table)

    def _refers(self, table: str, row: Row, checked: bool, only: Iterable[Key] | None = None) -> None:
        for key in self._of(table) if only is None else only:
            value = row[key.column]
            known = value is None or value in self.tables[key.parent]
            if checked and not known and not (key.parent == table and value == row[0]):
                raise Refused

    def _cascade(self, parent: str, old: int, new: int | None) -> None:
        for key in self.keys:
            if key.parent != parent:
                continue
            rule = key.on_delete if new is None else key.on_update
            rows = self.tables[key.child]
            for one in [row for row in rows.values() if row[key.column] == old]:
                row = rows.get(_id(one))
                if row is None or row[key.column] != old:
                    continue  # another way led to it
                if rule == "RESTRICT":
                    raise Refused
                del rows[_id(row)]
                if rule == "CASCADE" and new is None:
                    self._cascade(key.child, _id(row), None)
                    continue
                value = new if rule == "CASCADE" else None
                after = (*row[: key.column], value, *row[key.column + 1 :])
                if after[0] is None or after[0] in rows:
                    raise Refused
                rows[_id(after)] = after
                if after[0] != row[0]:
                    self._cascade(key.child, _id(row), _id(after))


def _id(row: Row) -> int:
    assert row[0] is not None
    return row[0]
