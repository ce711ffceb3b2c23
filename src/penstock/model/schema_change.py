"""What a statement in the source's log does to captured tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.model import plan
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TableSchema

NOT_OF_THEN = "its definition of that time is not known"
"""Why a table is read again that begins with the catalog's definition: later statements may have made it."""


@dataclass(frozen=True)
class TableEffect:
    """What one statement means for one captured table.

    `steps` end the table's plan of the epoch that ends at the statement. `voids`: why chunks that were read
    before are untrue. `created`: the table begins here with this schema, whatever had its name before.
    `fills`: it begins with rows that are not in the log. `rereads`: why rows changed in a way that is not in
    the log; of a table that is `created`: why its schema may be that of a later time. `dropped`: the table is
    gone. `renamed`: its rows continue under this name, which has an effect of its own. `was`: the earlier
    name of a `created` table, which had the same rows and definition. `what`: the change in a few words.
    """

    table: TableId
    steps: tuple[plan.Step, ...] = ()
    voids: str | None = None
    created: TableSchema | None = None
    fills: bool = False
    rereads: str | None = None
    dropped: bool = False
    renamed: TableId | None = None
    was: TableId | None = None
    what: str = ""

    def definition_after(self, before: TableSchema | None) -> TableSchema | None:
        """The table's definition after the statement. None: the table is gone, or cannot be followed any
        further."""
        schema = before
        if self.created is not None:
            schema = None if self.rereads else self.created
        elif self.dropped or self.renamed is not None:
            schema = None
        for step in self.steps:
            if isinstance(step, plan.Evolve):
                schema = step.schema
            elif isinstance(step, plan.Park):
                schema = None
        return schema

    @classmethod
    def parked(cls, table: TableId, offset: Offset, *, reason: str, hint: str) -> TableEffect:
        return cls(table, (plan.Park(offset, reason, hint),))

    @classmethod
    def truncated(cls, table: TableId) -> TableEffect:
        return cls(table, (plan.TruncateTarget(),), voids="TRUNCATE TABLE", what="truncated")


def only_truncates(effects: Sequence[TableEffect], tables: Collection[TableId]) -> bool:
    """Whether a statement with these effects empties all of `tables` and does nothing else. Then they had the
    same definitions before it. Without effects, the definitions before it are not known."""
    emptied = {one.table for one in effects if one == TableEffect.truncated(one.table)}
    return emptied.issuperset(tables) and len(emptied) == len(effects)
