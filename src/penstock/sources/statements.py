"""Finds out what the statements in a source's log mean for captured tables."""

from __future__ import annotations

from typing import Protocol

from penstock.model.schema import TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.relaylog.reader import Statement


class Statements(Protocol):
    """Interprets the statements of one relay log, in the order of the log. Only one thread uses it.

    The caller passes the definitions that tables have at the statement's place in the log. An unchanged
    definition proves nothing about rows. A statement that may have changed rows without row events has an
    effect that says so: `TableEffect.rereads`, or a `Park` step.
    """

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        """What the statement does to the tables in `live`, and which captured tables it creates. `live` has
        the definitions before the statement. The effects are in the order in which they take place. A table
        can have two: it is dropped, and another table takes its name. The same question gets the same
        answer."""

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        """The tables whose definition or rows the statement may change, and those that it creates. The result
        includes every table for which `effects` finds something."""
