"""Walks the statements of a part of the log that do something to the tables that are followed.

Three readers of the log do so: the planner (an epoch ends at the first such statement), the placement of
chunks (statements of the past that make chunks worthless), and the reader of changes (which carries
definitions from one statement to the next). What a statement means is the source's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from penstock.model.offset import LogRange
from penstock.model.schema import TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.relaylog.reader import Statement
from penstock.sources.statements import Statements


class HasStatements(Protocol):
    """A relay log, or an index of one."""

    def statements(self, range_: LogRange) -> Iterable[Statement]: ...


Concerns = Callable[[TableEffect, Statement], bool]


def effects_in(
    log: HasStatements,
    range_: LogRange,
    reader: Statements,
    live: Mapping[TableId, TableSchema],
    concerns: Concerns,
) -> Iterator[tuple[Statement, list[TableEffect]]]:
    """Statements in log order, each with the effects that matter to the caller; one that has none of these is
    passed over. `live` is read at each statement: a caller that carries definitions on changes it before he
    asks for the next one."""
    for statement in log.statements(range_):
        found = [effect for effect in reader.effects(statement, dict(live)) if concerns(effect, statement)]
        if found:
            yield statement, found
