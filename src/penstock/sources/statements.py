"""What the statements in a source's log mean for the tables that are captured."""

from __future__ import annotations

from typing import Protocol

from penstock.model.schema import TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.relaylog.reader import Statement


class Statements(Protocol):
    """Judges the statements of one relay log, in the order of the log. Serves one thread.

    A statement is applied to the definitions that it is given, which are those of its place in the log. An
    unchanged definition proves nothing about rows: a statement that may have changed rows without row events
    has an effect that says so (`TableEffect.rereads`, or a `Park` step).
    """

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        """What it does to the tables `live`, with the definitions that they have in the log before it, and
        which captured tables it makes. In the order in which effects are to be judged; a table may have two
        (one goes, another takes its name). Repeating a statement repeats the answer."""

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        """Those of the tables whose definition or rows the statement may change by itself, and those that it
        makes. Claims no less than `effects` would find."""
