"""The definition of one table along a part of a relay log.

Statements about the table cut the log into parts with one definition each. Where the source writes the names
of columns into the log (`binlog_row_metadata=FULL`), the first rows of a part say what its definition is.
Else it follows from a definition that is known at one offset, and from what the statements say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.changes.opening import planned_definitions
from penstock.config import TablesConfig
from penstock.errors import ConfigError, TableError
from penstock.model.offset import LogRange, Offset
from penstock.model.pattern import exactly
from penstock.model.plan import Park, TruncateTarget
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.model.schema_change import TableEffect, only_truncates
from penstock.model.statement_head import statement_head
from penstock.relaylog.reader import RelayLog, Statement
from penstock.relaylog.schema_from_log import described
from penstock.sources import statements_of
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore


@dataclass(frozen=True)
class Stretch:
    """A part of the log in which the table has one definition. `schema` None: it is not known, or there is no
    such table. `ends_with`: the statement at its end; None: the part that was asked for ends. `after`: the
    definition behind the statement."""

    range: LogRange
    schema: TableSchema | None
    ends_with: Statement | None
    after: TableSchema | None = None
    truncates: bool = False
    """The statement at its end removes all rows."""
    unseen: str = ""
    """Why that statement may have changed rows that are not in the log. Empty: it did not."""


@dataclass(frozen=True)
class Known:
    at: Offset
    schema: TableSchema


class Definitions:
    """Finds the definitions of one table along a log, which the caller refreshes. `known`: a definition that
    is true at an offset."""

    def __init__(self, log: RelayLog, table: TableId, types: TypeOptions, known: Known | None = None) -> None:
        self._log = log
        self._table = table
        self._known = known or planned(log, table)
        captured = TableFilter(TablesConfig(include=[exactly(table)]), fold_case=False)
        self._statements = statements_of(log, captured, types=types)

    def along(self, reach: LogRange) -> Iterator[Stretch]:
        """The stretches of a part of the log. The first one may be after the part's start, where a definition
        that is known before it is needed."""
        known = self._known
        if known is not None and known.at > reach.start:
            known = self._earliest(known, reach.start)
        if known is not None and known.at < reach.start:
            for stretch in self._along(LogRange(known.at, reach.start), known):
                schema = stretch.schema if stretch.ends_with is None else stretch.after
                known = None if schema is None else Known(stretch.range.end, schema)
        yield from self._along(reach, known)

    def _earliest(self, known: Known, start: Offset) -> Known:
        """The same definition, placed at the earliest offset from `start` on at which it is certainly true.
        Only TRUNCATE, and what certainly changes only rows, leaves a definition as it is."""
        at = known.at
        for statement in reversed([*self._log.statements(LogRange(start, known.at))]):
            if statement.tables is None and self._touches(statement):
                if not only_truncates(self._effects(statement, known.schema), [self._table]):
                    return Known(at, known.schema)
                at = statement.offset
        return Known(start, known.schema)

    def _along(self, reach: LogRange, known: Known | None) -> Iterator[Stretch]:
        start, schema = reach.start, None if known is None or known.at > reach.start else known.schema
        for statement in [*self._log.statements(reach), None]:
            if statement is not None and not self._touches(statement):
                continue
            part = LogRange(start, reach.end if statement is None else statement.end)
            found = self._of_rows(part, schema or (known.schema if known else None)) or schema
            inside = known is not None and part.start <= known.at < part.end + (statement is None)
            if found is None and known is not None and inside:
                found = known.schema
            if statement is None:
                if part:
                    yield Stretch(part, found, None)
                return
            effects = self._effects(statement, found)
            truncates = any(isinstance(step, TruncateTarget) for one in effects for step in one.steps)
            schema = found
            for effect in effects:
                schema = effect.definition_after(schema)
            yield Stretch(part, found, statement, schema, truncates, _unseen(effects))
            start = statement.end

    def _of_rows(self, part: LogRange, known: TableSchema | None) -> TableSchema | None:
        """The definition that the first rows of a part have, if the log says it."""
        return described(self._log, known or TableSchema(self._table, ()), part)

    def _touches(self, statement: Statement) -> bool:
        return self._table in self._statements.touched(statement, {self._table})

    def _effects(self, statement: Statement, schema: TableSchema | None) -> list[TableEffect]:
        live = {} if schema is None else {self._table: schema}
        return [one for one in self._statements.effects(statement, live) if one.table == self._table]


def _unseen(effects: list[TableEffect]) -> str:
    for effect in effects:
        if effect.rereads:
            return effect.rereads
        for step in effect.steps:
            if isinstance(step, Park):
                return step.reason
    return ""


def planned(log: RelayLog, table: TableId) -> Known | None:
    """The definition that the pipeline of a relay log in its own `state` has, and the offset at which it is
    true."""
    folder = log.place.folder
    if folder is None or not StateStore.exists(Path(folder).parent):
        return None
    try:
        found = planned_definitions(Path(folder).parent, [exactly(table)])
    except ConfigError:  # it has not begun, or does not know the table
        return None
    return Known(found.at, found.schemas[table])


def what_changed(stretch: Stretch) -> str:
    """The statement at the end of a stretch, for messages."""
    assert stretch.ends_with is not None
    return f"`{statement_head(stretch.ends_with.sql)}` at offset {stretch.ends_with.end}"


def refuse_unseen(table: TableId, stretch: Stretch) -> None:
    """Raises `TableError` if rows changed at the end of a stretch that the log does not have."""
    if stretch.unseen:
        raise TableError(
            f"{what_changed(stretch)} changed rows of {table} that are not in the log: {stretch.unseen}.",
            hint=f"Begin at {stretch.range.end}, or end there.",
            table=str(table),
            offset=int(stretch.range.end),
        )


def refuse_unknown(table: TableId, stretch: Stretch) -> TableSchema:
    """The definition of a stretch that has rows. Raises `ConfigError` if it is not known."""
    if stretch.schema is None:
        raise ConfigError(
            f"The names and types of the columns of {table} are not known between the offsets "
            f"{stretch.range.start} and {stretch.range.end} of the log.",
            hint="Set `binlog_row_metadata = FULL` at the source, so that the log has them from then on; or "
            "begin later.",
        )
    return stretch.schema
