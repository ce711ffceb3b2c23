"""Messages of changed definitions, for a sink that takes messages.

A statement that changes a definition ends its epoch, and the plan has the definitions before and after it. So
its message is the last one of the epoch, behind all rows that were written under the definition before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock._core import LogEncoder
from penstock.encode.statements import definition_messages
from penstock.epochs.ruled_log import Rules
from penstock.errors import TableError
from penstock.model.offset import LogRange
from penstock.model.plan import DefinitionChange, EpochPlan
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import LogMessage, LogSink

log = logging.getLogger(__name__)

_NO_TABLE = ("", "")
"""No table has this name, so only statements are read."""


def told(plan: EpochPlan, refused: Collection[TableId]) -> list[DefinitionChange]:
    """The changes that have messages: not those of tables that were left out of the epoch."""
    return [change for change in plan.definitions if change.schema.table not in refused]


@dataclass(frozen=True)
class ShownChange:
    """A change as messages show it. `ruled`: `transforms` has rules for the table. Then its messages may not
    contain the source's SQL, which may have values of hidden columns in defaults and expressions."""

    table: TableId
    change: DefinitionChange
    ruled: bool

    @property
    def shown(self) -> TableSchema:
        return self.change.schema


def shown(
    changes: Sequence[DefinitionChange], rules_of: Callable[[TableSchema], Rules | None]
) -> list[ShownChange]:
    """The changes of tables as their messages show them. A change is left out if the rules do not fit its
    table any more. That table is parked at its next change."""
    found = []
    for change in changes:
        try:
            rules = [None if one is None else rules_of(one) for one in (change.before, change.after)]
        except TableError as error:
            log.warning("the changed definition of %s is not sent: %s", change.schema.table, error)
            continue
        ruled = any(one is not None for one in rules)
        as_shown = DefinitionChange(*[None if one is None else one.shown for one in rules])
        found.append(ShownChange(change.schema.table, as_shown if ruled else change, ruled))
    return found


def messages(
    changes: Sequence[ShownChange], sink: LogSink, relay: RelayLog, reach: LogRange
) -> Iterator[list[LogMessage]]:
    """The messages of the statement at the end of a range."""
    if sink.format == "canal":
        # Its messages have nothing but the statement's text.
        changes = [one for one in changes if not one.ruled]
    statement = _last_statement(relay, reach) if changes else None
    if statement is None:
        return
    if any(one.ruled for one in changes):
        statement = {**statement, "sql": None}
    definitions = [one.change for one in changes]
    found = definition_messages(sink.format, sink.format_options, statement, definitions)
    yield [(sink.subject_of(table), key, value, int(reach.end)) for table, key, value in found]


def _last_statement(relay: RelayLog, reach: LogRange) -> dict[str, Any] | None:
    known = relay.statements(reach)
    if not known:
        return None
    alone = LogRange(relay.committed_before(known[-1].offset), reach.end)
    encoder = LogEncoder(parts_of(relay, alone), "json", tables=[_NO_TABLE])
    last = None
    while (step := encoder.read()) is not None:
        for statement in step if isinstance(step, list) else ():
            last = statement
    return last
