"""Decides which tables a pipeline follows, from which offset, and whether their existing rows are read.

The start S of a table must fulfil three conditions: (1) every epoch planned after S includes the table, (2)
the known definition is the one that the table has at S, (3) no chunk is read before the server has executed
everything up to S. So this module reads the definitions, asks for the end of the source's log, waits until
the relay log has reached it, and checks whether a statement about one of the tables is in between. If so,
the definition may be older or newer than S, and everything is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Protocol

from penstock.config import PipelineConfig
from penstock.errors import ConfigError, TransientError
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import KEY_CHANGED, AddKey, Change, TableState, TargetReset, new_table
from penstock.planning.parking import parked_when_found, reconfigured
from penstock.planning.policy import kept_by_name, tells_apart
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.schema_from_log import described
from penstock.sinks.base import Foreign, Missing, Ours, TargetState
from penstock.snapshot.placement import table_start
from penstock.sources.base import Source
from penstock.sources.catalog import Reason
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore
from penstock.steps import step

log = logging.getLogger(__name__)

ROUNDS_MAX = 10
"""How often the definitions are read if they change in the meantime. A migration changes a table several
times. A table that changes more often may never stop changing."""
DEFINITION_CHANGED = "its definition changed while it was read"
"""Reason for parking a table."""
DEFINITION_CHANGED_HINT = "Nothing to do: it is read again once its definition stops changing."
"""Hint for a table that is parked for that reason."""


class TableGone(ConfigError):
    """The table that should be read again does not exist."""


class Wait(Protocol):
    """Waits until the condition is true, as long as the caller wants to wait. See `Receiver.wait_for`."""

    def __call__(self, condition: Callable[[], Any], what: str, *, seconds: float = ...) -> None: ...


def discover(
    state: StateStore,
    relay_log: RelayLog,
    source: Source,
    captured: TableFilter,
    config: PipelineConfig,
    *,
    append_only: bool,
    wait: Wait,
    reads: bool = True,
) -> None:
    """Adds the tables that match the patterns and that the state does not know. Durable on return. `reads`:
    whether their rows are read, unless the pipeline never reads rows."""
    first = state.position is None
    if first:
        state.advance(relay_log.start)
    if not source.catalog.reads_tables:
        return  # the planner finds them in the log
    step("looking up the tables at the source")
    known = state.tables()
    schemas, start, restless = at_one_offset(
        relay_log, source, wait, lambda: source.catalog.read_tables(captured), finds=True
    )
    new = {table: schema for table, schema in schemas.items() if table not in known}
    # Asked after `start` is known: later changes come after it in the log.
    unfollowable = _unfollowable(source, new, config, reads=reads and config.snapshot.mode != "never")
    planned, now = state.position or relay_log.start, start
    if first and not config.source.begins_at_end:
        start = relay_log.start  # the log is older than the catalog: decoding checks that definitions fit
    else:
        start = table_start(last_planned_end=Offset(max(planned, start)), log_start=relay_log.start)
    if first and not config.source.begins_at_end and config.snapshot.mode == "never":
        # Nothing is read from the tables, so the definitions may be as old as the log.
        reach = LogRange(start, relay_log.end)
        new = {table: described(relay_log, schema, reach) or schema for table, schema in new.items()}
    with state.transaction():
        _reconfigure(state, reconfigured(known, schemas, config, source.catalog.cascade_reason))
        for schema in new.values():
            begin = start
            if schema.foreign_keys:
                # The log does not say when a foreign key was added, so it is followed from now on.
                begin = table_start(last_planned_end=Offset(max(planned, now)), log_start=relay_log.start)
            state.put_table(
                _new_table(schema, begin, config, append_only, source.catalog.add_key, reads=reads)
            )
            what = "found"
            if schema.table in restless:
                state.park(
                    schema.table,
                    offset=start,
                    reason=DEFINITION_CHANGED,
                    hint=DEFINITION_CHANGED_HINT,
                    resnapshot=DEFINITION_CHANGED,
                )
                what = DEFINITION_CHANGED
            state.add_change(Change(schema.table, schema.version, start, what, "captured"))
        parked = parked_when_found(state.tables(), new.keys(), unfollowable, config)
        for table, (reason, hint) in parked.items():
            state.park(table, offset=start, reason=reason, hint=hint)


def restart_table(
    state: StateStore,
    relay_log: RelayLog,
    source: Source,
    table: TableId,
    config: PipelineConfig,
    *,
    open_target: Callable[[TableId], TargetState],
    wait: Wait,
    why: str = "asked for",
) -> None:
    """Starts a resnapshot: the table gets a new start and its current definition, and is read in chunks.

    In the meantime the target keeps its rows, in the columns of that definition, unless it has to be emptied.
    Rows that do not exist at the source any more are deleted when the last chunk is placed. A change log gets
    a `truncate` at the start, and then all rows again. A target that will be recreated is not opened.

    Raises `ConfigError` for a table that does not exist, and `TransientError` while its definition keeps
    changing.
    """
    old = state.table(table)
    if old is None:
        raise ConfigError(
            f"The pipeline does not capture {table}.", hint="`penstock status FILE` lists its tables."
        )
    found, start, restless = at_one_offset(relay_log, source, wait, lambda: _one(source, table))
    if restless:
        raise TransientError(f"The definition of {table} changes faster than it can be read.")
    if table not in found:
        raise TableGone(f"Table {table} does not exist at the source any more.")
    unfollowable = _unfollowable(source, [table], config, reads=True)
    schema = replace(found[table], version=old.schema.version + 1)
    start = Offset(max(start, state.position or start))
    renewed = old.target_reset == "recreate"
    target = None if renewed else open_target(table)
    missing = renewed or isinstance(target, Missing)
    # A target that should have been emptied still has its rows.
    has_rows = (old.written or old.target_reset == "truncate") and not missing
    append_only = not config.sink_kind.keeps_tables
    new = new_table(schema, start, reads=True, append_only=append_only, add_key=source.catalog.add_key)
    adopts = isinstance(target, Foreign) and target.adoptable
    keeps_columns = config.evolution.changes == "ignore" and not missing and not adopts
    with state.transaction():
        if schema.key_columns != old.schema.key_columns:
            state.end_partials(table, KEY_CHANGED)
        state.forget_chunks(table)
        again = replace(
            new,
            written=has_rows and not append_only,
            replaces=start if has_rows else Offset(0),
            last_epoch=0 if missing else old.last_epoch,
            target_reset=_reset(old, schema, target, missing=missing, empties=append_only and has_rows),
            kept_columns=kept_by_name(old, schema) if keeps_columns else None,
        )
        state.put_table(again.adopts() if adopts else again)
        state.add_change(Change(table, schema.version, start, "read again from its beginning", why))
        if table in unfollowable:
            reason, hint = unfollowable[table]
            state.park(table, offset=start, reason=reason, hint=hint)


def _unfollowable(
    source: Source, tables: Collection[TableId], config: PipelineConfig, *, reads: bool
) -> dict[TableId, Reason]:
    """Tables that cannot be followed, or read (`reads`), and why."""
    if not tables:
        return {}
    return source.catalog.unfollowable(tables, cascades=config.cascades == "park", reads=reads)


def _one(source: Source, table: TableId) -> dict[TableId, TableSchema]:
    schema = source.catalog.read_table(table)
    return {} if schema is None else {table: schema}


def _reset(
    old: TableState, schema: TableSchema, target: TargetState | None, *, missing: bool, empties: bool
) -> TargetReset:
    """What must be done to the target before rows with the columns of `schema` are written. `empties`: it
    has rows that nothing else would delete."""
    if old.target_reset == "recreate":
        return "recreate"
    if missing:
        return "none"
    if empties or old.target_reset == "truncate" or not tells_apart(old.schema, schema):
        return "truncate"
    same = _shape(schema) == _shape(old.schema) and old.kept_columns is None and old.target_reset == "none"
    lacks = isinstance(target, Ours) and target.lost_columns
    return "none" if same and not lacks else "evolve"


def _shape(schema: TableSchema) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    return schema.columns, schema.key


def at_one_offset(
    relay_log: RelayLog,
    source: Source,
    wait: Wait,
    read: Callable[[], dict[TableId, TableSchema]],
    *,
    finds: bool = False,
) -> tuple[dict[TableId, TableSchema], Offset, set[TableId]]:
    """Reads definitions. Returns them, an offset at which they are valid (see the module's argument), and the
    tables for which that is not certain, because statements about them continued to come. `finds`: newly
    created tables count, too."""
    restless: set[TableId] = set()
    for _ in range(ROUNDS_MAX):
        begin = reach_end(relay_log, source, wait)
        schemas = read()
        start = reach_end(relay_log, source, wait)
        restless = _touched(relay_log, source, LogRange(begin, start), set(schemas), finds=finds)
        if not restless:
            break
        log.info("table definitions changed while they were read; reading them again")
    return schemas, start, restless


def reach_end(relay_log: RelayLog, source: Source, wait: Wait) -> Offset:
    """The offset of the source's current end, once the relay log has reached it. Raises `TransientError`."""
    end = source.end_position()

    def reached() -> bool:
        relay_log.refresh()
        return relay_log.reached(end)

    wait(reached, f"the relay log to reach {end}, the source's end")
    offset = relay_log.offset_reaching(end)
    assert offset is not None
    return offset


def _touched(
    relay_log: RelayLog, source: Source, between: LogRange, tables: set[TableId], *, finds: bool
) -> set[TableId]:
    """Tables that statements in the range may have changed. With `finds`, also new tables."""
    touched: set[TableId] = set()
    for statement in relay_log.statements(between):
        named = source.touched(statement, tables)
        touched |= named if finds else named & tables
    return touched


def _reconfigure(state: StateStore, changes: list[tuple[TableState, tuple[str, str] | None]]) -> None:
    """Applies a changed option `cascades` to known tables."""
    for table, parked in changes:
        state.put_table(table)
        if parked is not None:
            reason, hint = parked
            state.park(table.table, offset=state.position or table.start, reason=reason, hint=hint)


def _new_table(
    schema: TableSchema,
    start: Offset,
    config: PipelineConfig,
    append_only: bool,
    add_key: AddKey,
    *,
    reads: bool,
) -> TableState:
    reads = reads and config.snapshot.mode != "never"
    return new_table(schema, start, reads=reads, append_only=append_only, add_key=add_key)
