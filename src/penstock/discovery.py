"""Which tables a pipeline follows, from where, and whether their existing rows are read.

A table's start S must be such that (1) every epoch planned after S carries the table, (2) the definition we
hold is the one the log has at S, (3) no chunk is read before the server has executed everything up to S. So:
read the definitions, then ask for the end of the binlog, wait until the relay log holds it, and look whether
a statement about one of the tables stands in between; if so, the definition may be older or newer than S,
and all is done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from penstock.config import PipelineConfig
from penstock.errors import ConfigError, TransientError
from penstock.model.effect import CreateTable, Harmless, Unknown
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Missing
from penstock.snapshot.place import table_start
from penstock.sources.base import TableFilter
from penstock.sources.mysql.session import SourceSession
from penstock.sources.mysql.statements import cascade_reason
from penstock.state import SnapshotStatus, StateStore, TableState, new_table

log = logging.getLogger(__name__)

ROUNDS_MAX = 10
CATCH_UP_SECONDS_MAX = 24 * 3600


class Wait(Protocol):
    def __call__(self, condition: Callable[[], Any], what: str, *, seconds: float = ...) -> None: ...


def discover(
    state: StateStore,
    relay_log: RelayLog,
    source: SourceSession,
    captured: TableFilter,
    config: PipelineConfig,
    *,
    append_only: bool,
    cascading: set[TableId],
    wait: Wait,
) -> None:
    """Adds the tables that the patterns capture and the state does not know. Durable when it returns."""
    first = state.position is None
    if first:
        state.advance(relay_log.start)
    known = state.tables()
    schemas, start = _at_one_offset(relay_log, source, wait, lambda: source.read_tables(captured))
    new = {table: schema for table, schema in schemas.items() if table not in known}
    planned = state.position or relay_log.start
    if first and config.start.at != "latest":
        start = relay_log.start  # the log reaches back further than the definitions: decode checks them
    else:
        start = table_start(last_planned_end=Offset(max(planned, start)), log_start=relay_log.start)
    with state.transaction():
        for schema in new.values():
            state.put_table(_new_table(schema, start, config, append_only))
        for table in cascading & new.keys():
            reason, hint = cascade_reason(table)
            state.park(table, offset=start, reason=reason, hint=hint)


def restart_table(
    state: StateStore,
    relay_log: RelayLog,
    source: SourceSession,
    table: TableId,
    config: PipelineConfig,
    *,
    sink: Any,
    cascading: set[TableId],
    wait: Wait,
) -> None:
    """Reads a table again from its beginning: a new start, its present definition, all chunks. Rows that are
    gone at the source leave the target when the last chunk is placed; if the columns differ, the target is
    made anew."""
    old = state.table(table)
    if old is None:
        raise ConfigError(
            f"Table {table} is not one of this pipeline's.", hint="`penstock status` lists them."
        )
    found, start = _at_one_offset(relay_log, source, wait, lambda: _one(source, table))
    if table not in found:
        raise ConfigError(f"Table {table} does not exist at the source any more.")
    schema = replace(found[table], version=old.schema.version + 1)
    start = Offset(max(start, state.position or start))
    fresh = _new_table(schema, start, config, sink.append_only)
    same = _shape(schema) == _shape(old.schema)
    if not same and not sink.append_only and fresh.status == "live":
        sink.drop(table)
    gone = isinstance(sink.open(table), Missing)
    keeps = same and old.written and not gone
    with state.transaction():
        state.forget_chunks(table)
        state.put_table(
            replace(
                fresh,
                written=keeps,
                replaces=start if keeps else Offset(0),
                last_epoch=0 if gone else old.last_epoch if same else -1,
            )
        )
        if table in cascading:
            reason, hint = cascade_reason(table)
            state.park(table, offset=start, reason=reason, hint=hint)


def _one(source: SourceSession, table: TableId) -> dict[TableId, TableSchema]:
    schema = source.read_table(table)
    return {} if schema is None else {table: schema}


def _shape(schema: TableSchema) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    return schema.columns, schema.key


def _at_one_offset(
    relay_log: RelayLog, source: SourceSession, wait: Wait, read: Callable[[], dict[TableId, TableSchema]]
) -> tuple[dict[TableId, TableSchema], Offset]:
    """Definitions, and an offset at which they hold (see the module's argument)."""
    for _ in range(ROUNDS_MAX):
        begin = _reach_end(relay_log, source, wait)
        schemas = read()
        start = _reach_end(relay_log, source, wait)
        if not _touches(relay_log, source, LogRange(begin, start), set(schemas)):
            return schemas, start
        log.info("table definitions changed while they were read; reading them again")
    raise TransientError("The tables' definitions change faster than they can be read.")


def _reach_end(relay_log: RelayLog, source: SourceSession, wait: Wait) -> Offset:
    """The offset of the source's present end, once the relay log holds it."""
    end = source.end_position()

    def reached() -> bool:
        relay_log.refresh()
        return relay_log.reached(end)

    wait(reached, f"the relay log to reach {end}, the source's end", seconds=CATCH_UP_SECONDS_MAX)
    offset = relay_log.offset_reaching(end)
    assert offset is not None
    return offset


def _touches(relay_log: RelayLog, source: SourceSession, between: LogRange, tables: set[TableId]) -> bool:
    for statement in relay_log.statements(between):
        for effect in source.effects(statement):
            if isinstance(effect, Unknown):
                return True
            named = getattr(effect, "table", None)
            if not isinstance(effect, Harmless) and (named in tables or isinstance(effect, CreateTable)):
                return True
    return False


def _new_table(schema: TableSchema, start: Offset, config: PipelineConfig, append_only: bool) -> TableState:
    snapshot: SnapshotStatus = "none" if config.snapshot.mode == "never" else "splitting"
    return new_table(schema, start, snapshot=snapshot, append_only=append_only)
