"""Walks over the statements in a part of the log that affect the followed tables.

Three parts of Penstock need this: the planner (an epoch ends at the first such statement), the placement of
chunks (earlier statements that make chunks void), and the reader of changes (which tracks definitions from
one statement to the next). The source knows what a statement means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from penstock.model.offset import LogRange
from penstock.model.plan import DefinitionChange, Park
from penstock.model.schema import TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.relaylog.reader import Statement
from penstock.sources.statements import Statements


class HasStatements(Protocol):
    """A relay log, or an index of one."""

    def statements(self, range_: LogRange) -> Iterable[Statement]: ...


def definition_changes(
    effects: Iterable[TableEffect], live: Mapping[TableId, TableSchema]
) -> tuple[DefinitionChange, ...]:
    """The definitions that a statement changed, in the order of its effects. `live`: those before it."""
    known, found = dict(live), []
    for effect in effects:
        before = known.pop(effect.table, None)
        after = effect.definition_after(before)
        if after is not None:
            known[effect.table] = after
        if effect.created is not None and before is not None:
            found.append(DefinitionChange(before, None))
            before = None
        # Of a table that is parked it is not known what it is now.
        if before != after and not any(isinstance(step, Park) for step in effect.steps):
            found.append(DefinitionChange(before, after))
    return tuple(found)


Concerns = Callable[[TableEffect, Statement], bool]
Follows = Callable[[TableId, Statement], bool]


def follows_all(table: TableId, statement: Statement) -> bool:
    """For callers whose definitions of all tables are always those before the statement."""
    return True


def effects_in(
    log: HasStatements,
    range_: LogRange,
    reader: Statements,
    live: Mapping[TableId, TableSchema],
    concerns: Concerns,
    follows: Follows = follows_all,
) -> Iterator[tuple[Statement, list[TableEffect]]]:
    """Yields statements in the order of the log, each with the effects that matter to the caller.
    Statements without such effects are skipped. `live` is read at each statement: a caller that tracks
    definitions updates it before asking for the next one. `follows`: whether the definition in `live` is the
    one that the table has before the statement. Otherwise the table counts as not followed."""
    for statement in log.statements(range_):
        known = {table: schema for table, schema in live.items() if follows(table, statement)}
        found = [effect for effect in reader.effects(statement, known) if concerns(effect, statement)]
        if found:
            yield statement, found
