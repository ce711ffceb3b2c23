"""Messages of changed definitions, for a sink that takes messages.

A statement that changes a definition ends its epoch, and the plan has the definitions before and after it. So
its message is the last one of the epoch, behind all rows that were written under the definition before it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from penstock._core import LogEncoder
from penstock.encode.statements import definition_messages
from penstock.model.offset import LogRange
from penstock.model.plan import DefinitionChange, EpochPlan
from penstock.model.schema import TableId
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import LogMessage, LogSink

log = logging.getLogger(__name__)

_NO_TABLE = ("", "")
"""No table has this name, so only statements are read."""


def told(plan: EpochPlan, refused: Collection[TableId]) -> list[DefinitionChange]:
    """The changes that have messages: not those of tables that were left out of the epoch."""
    return [change for change in plan.definitions if change.schema.table not in refused]


def messages(
    changes: Sequence[DefinitionChange], sink: LogSink, relay: RelayLog, reach: LogRange
) -> Iterator[list[LogMessage]]:
    """The messages of the statement at the end of a range."""
    statement = _last_statement(relay, reach) if changes else None
    if statement is None:
        return
    found = definition_messages(sink.format, sink.format_options, statement, changes)
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
